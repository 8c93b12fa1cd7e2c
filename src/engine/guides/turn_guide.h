#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/guides/call_guide.h"
#include "engine/guides/call_rules.h"
#include "engine/guides/guide.h"
#include "text/chat/marks.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/matcher.h"
#include "text/output/thinking_budget.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::engine {

struct TurnGuideOptions {
  std::optional<uint64_t> think_budget;  // most tokens of thoughts
  bool can_end_thoughts = false;         // by TurnGuide::end_thoughts()
  // Whether a turn that is held to something may begin with thoughts: an answer with a grammar, a required call.
  bool may_think = true;
  // What the answer must match; thoughts before it are free, and so are calls in its place where they are allowed.
  std::shared_ptr<const text::grammar::CompiledGrammar> grammar;
  bool may_call_instead = false;  // of an answer that has a grammar, even without `calls.tools`
  CallRules calls;
  uint32_t min_tokens = 0;                 // before any stop
  std::vector<text::TokenId> stop_tokens;  // of this request, besides those of the vocabulary
  bool ignore_stops = false;               // those of the vocabulary; what follows the first of them is free
  bool is_raw = false;                     // marks of calls mean nothing, and a grammar begins at once

  bool is_needed() const;
};

// Steers one turn of a model: ends thoughts at their budget, holds the answer to its grammar and calls to their rules,
// and keeps the turn from stopping before it may.
//
// A turn is thoughts, an answer, and calls. The guide follows the marks, which are tokens of their own, as the parser
// of outputs does, and asks the matcher of the part that is being written. A turn is strict where its answer has a
// grammar or a call is required: it then has at most one thought, which must be followed by what was asked for.
//
// Stops are possible where the turn is complete, which a part that is held to something is at its end. Where nothing
// but a stop is possible it comes, min_tokens or not.
//
// Used by the engine's thread, except for end_thoughts().
class TurnGuide : public Guide {
 public:
  // prompt: the tokens the turn continues; a thought that is open there is gone on with. Throws kUnsupported where the
  // vocabulary has not the marks that are needed, kBadArgument for a tool that cannot be called.
  TurnGuide(const text::Tokenizer& tokenizer, std::shared_ptr<const text::Vocab> vocab,
            std::span<const text::TokenId> prompt, TurnGuideOptions options);

  // The thought that is being written ends with the next token, or the next one as soon as it begins. From any thread;
  // only with can_end_thoughts.
  void end_thoughts() { must_end_thoughts_.store(true, std::memory_order_relaxed); }

  bool spent_budget() const { return options_.think_budget && budget_ && budget_->is_spent(); }

  std::optional<text::TokenId> forced() override;
  std::span<const uint64_t> allowed() override;
  void accept(text::TokenId token) override;

 private:
  enum class Part {
    kStart,  // nothing of an answer or a call was written
    kThought,
    kAnswer,
    kCall,       // after <|tool_call>, where calls have rules
    kFreeCall,   // a call that nobody holds to anything
    kAfterCall,  // after <tool_call|>
    kFree,       // after a stop that did not end the turn, or a raw turn without a grammar
  };

  bool is_required() const { return options_.calls.mode == CallRules::Mode::kRequired; }
  bool is_strict() const { return answer_ || is_required(); }
  bool may_call() const;
  bool may_begin_thought() const { return options_.may_think && !has_thought_; }
  bool is_held_after_call() const { return is_strict() || call_ || !options_.calls.is_parallel; }
  bool is_end(text::TokenId token) const;

  void begin_budget(const text::Tokenizer& tokenizer, bool in_thought);
  void follow(text::TokenId token);
  void follow_text(text::TokenId token);
  void begin_call();

  std::span<const uint64_t> start_mask();
  std::span<const uint64_t> strict_thought_mask();
  std::span<const uint64_t> answer_mask();
  std::span<const uint64_t> call_mask();
  std::span<const uint64_t> free_call_mask();
  std::span<const uint64_t> after_call_mask();
  std::span<const uint64_t> free_mask();
  // mask_ with all stops or without any.
  std::span<const uint64_t> with_stops(bool may_stop);
  void fill(bool value);
  void set(text::TokenId token, bool value);
  bool is_set(text::TokenId token) const;

  TurnGuideOptions options_;
  std::shared_ptr<const text::Vocab> vocab_;
  text::MarkTokens marks_;
  std::vector<text::TokenId> stops_;  // of the vocabulary and of the request
  Part part_ = Part::kStart;
  bool has_thought_ = false;
  uint32_t tokens_ = 0;  // of the turn so far, as far as min_tokens counts
  std::optional<text::ThinkingBudget> budget_;
  std::optional<text::grammar::GrammarMatcher> answer_;
  std::optional<CallGuide> call_;  // where calls have rules
  std::deque<text::TokenId> forced_;
  std::vector<uint64_t> mask_;
  std::atomic<bool> must_end_thoughts_ = false;
};

}  // namespace carat::engine
