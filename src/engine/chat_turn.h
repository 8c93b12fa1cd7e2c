#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/conversation.h"
#include "text/detokenizer.h"
#include "text/loop_detector.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace carat::text::grammar {
class CompiledGrammar;
}

namespace carat::engine {

struct TurnOptions {
  uint32_t max_tokens = Request::kUnlimited;
  bool ignore_stops = false;
  SamplingOptions sampling;
  std::optional<uint64_t> think_budget;  // most tokens of thoughts
  bool loop_guard = true;                // an answer that repeats itself without end is stopped
  std::vector<std::string> tools;        // that may be called; empty: any
  // What the answer must match; thoughts before it and calls in its place are free.
  std::shared_ptr<const text::grammar::CompiledGrammar> grammar;
  bool is_raw = false;  // all the model writes is answer, marks of thoughts and calls included
};

enum class TurnEnding {
  kComplete,
  kToolCalls,      // the model waits for results
  kLength,         // max_tokens
  kThoughtsOnly,   // max_tokens were spent before the answer began
  kThoughtBudget,  // complete, but its thoughts were cut at the budget
  kContextFull,
  kLoop,
  kInterrupted,
  kFailed,
};

struct TurnResult {
  TurnEnding ending = TurnEnding::kFailed;
  text::Message message = {text::Role::kModel};
  std::vector<text::OutputEvent> bad_calls;      // kind kBadToolCall
  std::optional<text::LoopDetector::Loop> loop;  // where the ending is kLoop
  uint32_t thought_tokens = 0;
  double thought_seconds = 0.0;
};

// In words, for people: why the turn ended and what can be done; empty when it is complete.
std::string ending_note(const TurnResult& result, const TurnOptions& options, uint32_t context);

// One turn of the model on its way: the prompt is submitted when it is made; thoughts, answer and calls reach the sink
// as they become certain, from within Engine::step(). Not thread-safe; the engine must outlive it.
class ChatTurn {
 public:
  // Throws as Engine::submit does. call_number: of the first tool call, whose id becomes "call_<number>".
  ChatTurn(Engine& engine, const text::Tokenizer& tokenizer, std::vector<text::TokenId> prompt, TurnOptions options,
           text::OutputSink sink, uint64_t call_number = 1);
  ~ChatTurn();
  ChatTurn(const ChatTurn&) = delete;
  ChatTurn& operator=(const ChatTurn&) = delete;

  const Sequence& sequence() const { return *sequence_; }
  bool in_thought() const { return !options_.is_raw && parser_.in_thought(); }
  uint32_t thought_tokens() const { return result_.thought_tokens; }

  // When the sequence has ended: hands out what was held back and tells how it went. Once.
  TurnResult finish();

 private:
  class TurnGuide;

  void on_token(text::TokenId token);
  void on_raw_text(std::string text);
  void on_event(text::OutputEvent event);
  TurnEnding ending() const;

  Engine& engine_;
  TurnOptions options_;
  text::OutputSink sink_;
  uint64_t next_call_;
  std::shared_ptr<TurnGuide> guide_;  // null when nothing needs steering
  text::TokenOutputParser parser_;
  text::Detokenizer raw_;  // in the parser's place for raw turns
  text::LoopDetector loops_;
  TurnResult result_;
  std::string answer_;
  std::chrono::steady_clock::time_point last_token_;
  std::shared_ptr<const Sequence> sequence_;
};

}  // namespace carat::engine
