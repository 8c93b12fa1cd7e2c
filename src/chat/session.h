#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_turn.h"
#include "engine/runner/runner.h"
#include "text/chat/chat_template.h"
#include "text/chat/conversation.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::chat {

// What happens to a conversation that no longer fits into the context.
enum class Overflow {
  kError,  // the turn is refused
  kShift,  // the oldest turns are left out, and the user is told
};
Overflow parse_overflow(std::string_view text);  // throws kBadArgument naming --overflow

// Who watches a turn. All calls come from within the functions of ChatSession that make one, on the thread of their
// caller.
class TurnWatcher {
 public:
  virtual ~TurnWatcher() = default;
  virtual void note(std::string_view text) = 0;  // something the user should know before the answer
  virtual void reading(uint32_t done, uint32_t total, double seconds) = 0;
  virtual void event(const text::OutputEvent& event, const engine::ChatTurn& turn) = 0;
  virtual void thinking(const engine::ChatTurn& turn) = 0;  // after every token of a thought
};

// How one turn went.
struct TurnReport {
  engine::TurnResult result;
  uint32_t prompt_reused = 0;
  uint32_t prompt_new = 0;
  double prompt_seconds = 0.0;
  uint32_t generated = 0;
  uint32_t decode_passes = 0;
  uint32_t decode_tokens = 0;
  double decode_seconds = 0.0;
  engine::DraftFigures drafts;
  uint32_t context_used = 0;
  std::string cache_note;   // why what was known could not be reused; empty when it was
  std::string ending_note;  // why the turn ended; empty when the model was done
};

// One conversation with one model. Each turn renders the whole conversation; the engine's cache makes only what is new
// cost anything. Several conversations may share a runner. A turn is interrupted by the executor's cancelled flag.
class ChatSession {
 public:
  struct Options {
    bool thinking = false;
    Overflow overflow = Overflow::kError;
    engine::TurnOptions turn;
  };

  ChatSession(std::shared_ptr<engine::Runner> runner, text::ChatTemplate chat_template, Options options);

  Options& options() { return options_; }
  const Options& options() const { return options_; }
  const text::Conversation& conversation() const { return conversation_; }
  const text::ChatTemplate& chat_template() const { return template_; }
  const engine::Runner& runner() const { return *runner_; }
  uint32_t context() const { return context_; }
  std::string system() const;

  void set_system(std::string text);  // empty: none
  void set_tools(std::vector<text::Tool> tools);
  void set_thinking(bool on);
  void replace(text::Conversation conversation);
  void clear();  // keeps system instructions and tools

  // The conversation goes on with the user's words and the model's answer to them. When that fails, or is interrupted
  // before a word of the answer, it stays as it was.
  TurnReport ask(std::string text, TurnWatcher& watcher);
  // The model goes on after the results of its calls. All calls of its last message must have one.
  TurnReport go_on(std::vector<text::Message> results, TurnWatcher& watcher);
  // Another answer to the last question. Throws kBadArgument when nothing has been asked.
  TurnReport regenerate(TurnWatcher& watcher);

  // The raw text as the whole prompt, outside of the conversation; special texts in it are tokens.
  TurnReport complete(std::string_view text, TurnWatcher& watcher);

 private:
  TurnReport answer(TurnWatcher& watcher);
  void forget_question();  // the last one and what came after it
  TurnReport run(std::vector<text::TokenId> prompt, engine::TurnOptions options, TurnWatcher& watcher);
  TurnReport report(engine::ChatTurn& turn, const engine::TurnOptions& options, const engine::RequestEnd& end,
                    std::vector<text::TokenId> tokens);
  std::vector<text::TokenId> render() const;
  std::vector<text::TokenId> fitted_prompt(TurnWatcher& watcher);
  size_t drop_oldest_turn();
  void check_fits(size_t tokens) const;
  std::string explain_cache(const engine::SequenceFigures& figures, std::span<const text::TokenId> prompt) const;

  std::shared_ptr<engine::Runner> runner_;
  text::ChatTemplate template_;
  text::Tokenizer tokenizer_;
  Options options_;
  uint32_t context_;
  text::Conversation conversation_;
  std::string abandoned_;  // a question that was interrupted before a word of its answer
  uint64_t next_call_ = 1;
  std::vector<text::TokenId> known_;  // tokens of the last turn, prompt and answer, as far as they were run
  size_t known_prompt_ = 0;           // how many of them were the prompt
  std::string change_;                // what the user changed since then, in words
};

}  // namespace carat::chat
