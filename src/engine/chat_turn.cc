#include "engine/chat_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/cache/resume_points.h"
#include "engine/guides/turn_guide.h"

namespace carat::engine {

namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string tokens(uint64_t count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); }

std::shared_ptr<TurnGuide> make_guide(const text::Tokenizer& tokenizer, const std::shared_ptr<const text::Vocab>& vocab,
                                      std::span<const text::TokenId> prompt, const TurnOptions& options) {
  const TurnGuideOptions wanted{.think_budget = options.think_budget,
                                .can_end_thoughts = options.can_end_thoughts,
                                .may_think = options.may_think,
                                .grammar = options.grammar,
                                .may_call_instead = !options.tools.empty(),
                                .calls = options.calls,
                                .min_tokens = options.min_tokens,
                                .stop_tokens = options.stop_tokens,
                                .ignore_stops = options.ignore_stops,
                                .is_raw = options.is_raw};
  return wanted.is_needed() ? std::make_shared<TurnGuide>(tokenizer, vocab, prompt, wanted) : nullptr;
}

}  // namespace

ChatTurn::ChatTurn(const text::Tokenizer& tokenizer, std::shared_ptr<const text::Vocab> vocab,
                   std::vector<text::TokenId> prompt, TurnOptions options, text::OutputSink sink, uint64_t call_number)
    : options_(std::move(options)),
      vocab_(vocab),
      sink_(std::move(sink)),
      next_call_(call_number),
      guide_(make_guide(tokenizer, vocab, prompt, options_)),
      parser_(vocab, prompt, options_.tools, [this](text::OutputEvent event) { on_event(std::move(event)); }),
      raw_(vocab),
      stops_(options_.stops),
      last_token_(std::chrono::steady_clock::now()) {
  request_.resume_points = resume_points_of(prompt, *vocab_);
  request_.prompt = std::move(prompt);
  request_.max_tokens = options_.max_tokens;
  request_.ignore_stops = options_.ignore_stops;
  request_.stop_tokens = options_.stop_tokens;
  request_.logprobs = options_.logprobs;
  request_.sampling = options_.sampling;
  request_.guide = guide_;
}

ChatTurn::~ChatTurn() = default;

void ChatTurn::end_thoughts() {
  if (guide_ && options_.can_end_thoughts) guide_->end_thoughts();
}

bool ChatTurn::append(text::TokenId token) {
  if (result_.loop || stops_.has_found()) return false;
  ++tokens_;
  const auto now = std::chrono::steady_clock::now();
  const bool was_in_thought = in_thought();
  if (options_.is_raw) {
    on_raw_text(raw_.append(token));
  } else {
    parser_.append(token);
  }
  if (was_in_thought) {
    // The token that closes the channel is none of a thought, but writing it took its time.
    result_.thought_tokens += in_thought() ? 1 : 0;
    result_.thought_seconds += seconds_between(last_token_, now);
  }
  last_token_ = now;
  if (stops_.has_found()) return false;
  if (options_.loop_guard && !options_.ignore_stops) result_.loop = loops_.append(token);
  return !result_.loop;
}

void ChatTurn::on_raw_text(std::string text) {
  if (!text.empty()) on_event({.kind = text::OutputEvent::Kind::kAnswer, .text = std::move(text)});
}

void ChatTurn::on_event(text::OutputEvent event) {
  if (stops_.has_found()) return;
  if (event.kind != text::OutputEvent::Kind::kAnswer) {
    release_held();
    return emit(std::move(event));
  }
  has_answer_ = true;
  if (tokens_ > options_.min_tokens) event.text = stops_.append(event.text);
  if (stops_.has_found()) result_.stopped_by = stops_.found();
  if (!event.text.empty()) emit(std::move(event));
}

// The beginning of a stop that is followed by something else than answer.
void ChatTurn::release_held() {
  std::string held = stops_.flush();
  if (!held.empty()) emit({.kind = text::OutputEvent::Kind::kAnswer, .text = std::move(held)});
}

void ChatTurn::emit(text::OutputEvent event) {
  switch (event.kind) {
    case text::OutputEvent::Kind::kThought:
      result_.message.reasoning += event.text;
      break;
    case text::OutputEvent::Kind::kAnswer:
      answer_ += event.text;
      break;
    case text::OutputEvent::Kind::kToolCall:
      result_.message.tool_calls.push_back({fmt::format("call_{}", next_call_++), event.name, event.arguments});
      break;
    case text::OutputEvent::Kind::kBadToolCall:
      result_.bad_calls.push_back(event);
      break;
  }
  sink_(std::move(event));
}

bool ChatTurn::is_own_stop(text::TokenId token) const {
  const auto& own = options_.stop_tokens;
  const bool is_of_vocabulary = vocab_->is_stop(token) && !options_.ignore_stops;
  return !is_of_vocabulary && std::find(own.begin(), own.end(), token) != own.end();
}

TurnEnding ChatTurn::turn_ending(Ending ending) const {
  if (result_.loop) return TurnEnding::kLoop;
  const bool has_called = !result_.message.tool_calls.empty();
  if (stops_.has_found()) return has_called ? TurnEnding::kToolCalls : TurnEnding::kStopString;
  const bool only_thoughts = in_thought() && !has_answer_;
  switch (ending) {
    case Ending::kStopToken:
      if (has_called) return TurnEnding::kToolCalls;
      if (result_.stop_token >= 0) return TurnEnding::kStopToken;
      return guide_ && guide_->spent_budget() ? TurnEnding::kThoughtBudget : TurnEnding::kComplete;
    case Ending::kLength:
      return only_thoughts ? TurnEnding::kThoughtsOnly : TurnEnding::kLength;
    case Ending::kContextFull:
      return TurnEnding::kContextFull;
    case Ending::kCancelled:
    case Ending::kInterrupted:
      return TurnEnding::kInterrupted;
    case Ending::kFailed:
    case Ending::kNone:
      break;
  }
  return TurnEnding::kFailed;
}

TurnResult ChatTurn::finish(Ending ending, text::TokenId stop_token) {
  CARAT_CHECK(ending != Ending::kNone);
  if (ending == Ending::kStopToken && !stops_.has_found() && is_own_stop(stop_token)) result_.stop_token = stop_token;
  // Before the parser forgets where it was: a cut inside a thought is told from one inside the answer.
  const bool stopped = ending == Ending::kStopToken && !result_.loop && result_.stop_token < 0;
  const TurnEnding before = turn_ending(ending);
  if (options_.is_raw) {
    on_raw_text(raw_.flush());
  } else {
    parser_.finish(stopped ? text::OutputEnd::kStopped : text::OutputEnd::kCut);
  }
  release_held();
  // A call without its closing mark is only known now, and so is a stop text in what was held back.
  result_.ending = stopped || stops_.has_found() ? turn_ending(ending) : before;
  result_.message.content = std::move(answer_);
  return std::move(result_);
}

std::string ending_note(const TurnResult& result, const TurnOptions& options, uint32_t context) {
  switch (result.ending) {
    case TurnEnding::kComplete:
    case TurnEnding::kToolCalls:
    case TurnEnding::kStopString:
    case TurnEnding::kStopToken:
      return {};
    case TurnEnding::kLength:
      // A raw text has no end of its own: that is where it was to stop.
      return options.is_raw ? std::string()
                            : fmt::format("the answer is cut off at the limit of {} (-n)", tokens(options.max_tokens));
    case TurnEnding::kThoughtsOnly:
      return fmt::format("the limit of {} (-n) was reached inside the thoughts, before an answer",
                         tokens(options.max_tokens));
    case TurnEnding::kThoughtBudget:
      return fmt::format("the thoughts were ended at their budget of {} (--think-budget)",
                         tokens(options.think_budget.value_or(0)));
    case TurnEnding::kContextFull:
      return fmt::format("the answer is cut off: the context of {} is full; a larger -c gives it room",
                         tokens(context));
    case TurnEnding::kLoop:
      return fmt::format(
          "stopped: the model repeats itself ({} times the same {} tokens); --no-loop-guard lets it go on",
          result.loop ? result.loop->copies : 0, result.loop ? result.loop->period : 0);
    case TurnEnding::kInterrupted:
      return "interrupted";
    case TurnEnding::kFailed:
      return "failed";
  }
  return {};
}

}  // namespace carat::engine
