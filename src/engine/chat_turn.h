#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/guides/call_rules.h"
#include "engine/sequence.h"
#include "text/chat/conversation.h"
#include "text/output/loop_detector.h"
#include "text/output/output_parser.h"
#include "text/output/stop_matcher.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::text::grammar {
class CompiledGrammar;
}

namespace carat::engine {

class TurnGuide;

struct TurnOptions {
  uint32_t max_tokens = Request::kUnlimited;
  bool ignore_stops = false;
  SamplingOptions sampling;
  std::optional<uint64_t> think_budget;  // most tokens of thoughts
  bool loop_guard = true;                // an answer that repeats itself without end is stopped
  std::vector<std::string> tools;        // that may be called; empty: any
  // Whether there may be thoughts before an answer with a grammar or a required call.
  bool may_think = true;
  bool can_end_thoughts = false;  // by ChatTurn::end_thoughts()
  // What the answer must match; thoughts before it and calls in its place are free, where tools are given.
  std::shared_ptr<const text::grammar::CompiledGrammar> grammar;
  CallRules calls;
  // Texts that end the answer. Only the answer is searched, neither thoughts nor calls; a stop does not reach across
  // them. Neither it nor what follows is part of the turn.
  std::vector<std::string> stops;
  std::vector<text::TokenId> stop_tokens;  // that end the turn besides those of the vocabulary
  // Before any stop: tokens that stop are impossible, texts count from then on. Where only a stop can follow, because a
  // grammar or the rules of calls say so, it comes nonetheless.
  uint32_t min_tokens = 0;
  std::optional<uint32_t> logprobs;  // as of Request
  bool is_raw = false;  // all the model writes is answer, marks of thoughts and calls included; calls have no rules
};

enum class TurnEnding {
  kComplete,
  kToolCalls,      // the model waits for results
  kLength,         // max_tokens
  kThoughtsOnly,   // max_tokens were spent before the answer began
  kThoughtBudget,  // complete, but its thoughts were cut at the budget
  kStopString,     // a text of TurnOptions::stops
  kStopToken,      // a token of TurnOptions::stop_tokens
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
  // The text or the token of the request that ended the turn. Where functions were called before, that is the ending.
  std::string stopped_by;
  text::TokenId stop_token = -1;
  uint32_t thought_tokens = 0;
  double thought_seconds = 0.0;
};

// In words, for people: why the turn ended and what can be done; empty when it is complete.
std::string ending_note(const TurnResult& result, const TurnOptions& options, uint32_t context);

// One turn of the model, from the request it makes to the message its tokens become: thoughts, answer and calls reach
// the sink as they become certain. It knows nothing of who runs the request; the tokens may be given to it on another
// thread than the engine's, any time after they were chosen.
class ChatTurn {
 public:
  // call_number: of the first tool call, whose id becomes "call_<number>".
  ChatTurn(const text::Tokenizer& tokenizer, std::shared_ptr<const text::Vocab> vocab,
           std::vector<text::TokenId> prompt, TurnOptions options, text::OutputSink sink, uint64_t call_number = 1);
  ~ChatTurn();
  ChatTurn(const ChatTurn&) = delete;
  ChatTurn& operator=(const ChatTurn&) = delete;

  // What is to be submitted. Once; its guide belongs to the engine until the request has ended.
  Request take_request() { return std::move(request_); }

  // The next token of the request. False: the model repeats itself or has written a stop text, and the request is to be
  // cancelled; tokens that still come are no part of the turn.
  bool append(text::TokenId token);
  bool in_thought() const { return !options_.is_raw && parser_.in_thought(); }
  bool in_call() const { return !options_.is_raw && parser_.in_call(); }
  uint32_t thought_tokens() const { return result_.thought_tokens; }

  // From any thread while the request runs, with TurnOptions::can_end_thoughts: the thought is rounded off and closed
  // from the next token on, as at a budget's end; where there is none yet, as soon as there is.
  void end_thoughts();

  // When the request has ended: hands out what was held back and tells how it went. Once. stop_token: as of RequestEnd.
  // A loop or a stop text is the ending however the request came to its end.
  TurnResult finish(Ending ending, text::TokenId stop_token = -1);

 private:
  bool is_own_stop(text::TokenId token) const;
  void emit(text::OutputEvent event);
  void release_held();
  void on_raw_text(std::string text);
  void on_event(text::OutputEvent event);
  TurnEnding turn_ending(Ending ending) const;

  TurnOptions options_;
  std::shared_ptr<const text::Vocab> vocab_;
  text::OutputSink sink_;
  uint64_t next_call_;
  std::shared_ptr<TurnGuide> guide_;  // null when nothing needs steering
  Request request_;
  text::TokenOutputParser parser_;
  text::Detokenizer raw_;  // in the parser's place for raw turns
  text::LoopDetector loops_;
  text::StopMatcher stops_;
  uint32_t tokens_ = 0;  // given to append()
  bool has_answer_ = false;
  TurnResult result_;
  std::string answer_;
  std::chrono::steady_clock::time_point last_token_;
};

}  // namespace carat::engine
