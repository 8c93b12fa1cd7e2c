#include "engine/chat_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/matcher.h"
#include "text/thinking_budget.h"

namespace carat::engine {

namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string tokens(uint64_t count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); }

text::TokenId id_of(const text::Vocab& vocab, std::string_view mark) { return vocab.find(mark).value_or(-1); }

}  // namespace

// Ends thoughts at their budget and holds the answer to its grammar.
class ChatTurn::TurnGuide : public Guide {
 public:
  TurnGuide(const text::Tokenizer& tokenizer, std::span<const text::TokenId> prompt, const TurnOptions& options)
      : vocab_(tokenizer.vocab()),
        open_(id_of(vocab_, "<|channel>")),
        close_(id_of(vocab_, "<channel|>")),
        call_(id_of(vocab_, "<|tool_call>")) {
    for (const text::TokenId token : prompt) {
      if (token == open_) in_thought_ = true;
      if (token == close_) in_thought_ = false;
    }
    if (options.think_budget) budget_.emplace(tokenizer, *options.think_budget, in_thought_);
    if (!options.grammar) return;
    matcher_.emplace(options.grammar);
    may_call_ = !options.tools.empty();
    mask_.resize((vocab_.size() + 63) / 64);
  }

  static bool is_needed(const TurnOptions& options) { return options.think_budget || options.grammar; }
  bool spent_budget() const { return budget_ && budget_->is_spent(); }

  std::optional<text::TokenId> forced() override {
    if (forced_.empty()) return std::nullopt;
    return forced_.front();
  }

  std::span<const uint64_t> allowed() override {
    if (!matcher_ || in_call_) return {};
    if (in_thought_) return everything_but_stops();
    if (has_begun_) return matcher_->allowed().words();
    // Before the answer the model may think, or call a tool instead.
    const std::span<const uint64_t> answer = matcher_->allowed().words();
    std::copy(answer.begin(), answer.end(), mask_.begin());
    if (!has_thought_) allow(open_);
    if (may_call_) allow(call_);
    return mask_;
  }

  void accept(text::TokenId token) override {
    if (!forced_.empty()) forced_.pop_front();
    if (budget_) {
      const auto closing = budget_->append(token);
      forced_.insert(forced_.end(), closing.begin(), closing.end());
    }
    follow(token);
  }

 private:
  void follow(text::TokenId token) {
    if (in_call_) return;
    if (in_thought_) {
      in_thought_ = token != close_;
      return;
    }
    if (!has_begun_ && token == open_) {
      in_thought_ = has_thought_ = true;
    } else if (!has_begun_ && may_call_ && token == call_) {
      in_call_ = true;
    } else if (matcher_) {
      has_begun_ = true;
      if (!vocab_.is_stop(token)) matcher_->accept(token);
    }
  }

  void allow(text::TokenId token) {
    if (token >= 0) mask_[static_cast<size_t>(token) / 64] |= uint64_t{1} << static_cast<size_t>(token) % 64;
  }

  // An answer must follow, so thoughts cannot end the output.
  std::span<const uint64_t> everything_but_stops() {
    std::fill(mask_.begin(), mask_.end(), ~uint64_t{0});
    if (vocab_.size() % 64 != 0) mask_.back() = (uint64_t{1} << vocab_.size() % 64) - 1;
    for (const text::TokenId stop : vocab_.stops()) {
      mask_[static_cast<size_t>(stop) / 64] &= ~(uint64_t{1} << static_cast<size_t>(stop) % 64);
    }
    return mask_;
  }

  const text::Vocab& vocab_;
  text::TokenId open_, close_, call_;
  bool in_thought_ = false;
  bool has_thought_ = false;
  bool in_call_ = false;    // from the first call on nothing is constrained
  bool has_begun_ = false;  // the answer
  bool may_call_ = false;
  std::optional<text::ThinkingBudget> budget_;
  std::optional<text::grammar::GrammarMatcher> matcher_;
  std::deque<text::TokenId> forced_;
  std::vector<uint64_t> mask_;
};

ChatTurn::ChatTurn(Engine& engine, const text::Tokenizer& tokenizer, std::vector<text::TokenId> prompt,
                   TurnOptions options, text::OutputSink sink, uint64_t call_number)
    : engine_(engine),
      options_(std::move(options)),
      sink_(std::move(sink)),
      next_call_(call_number),
      guide_(TurnGuide::is_needed(options_) ? std::make_shared<TurnGuide>(tokenizer, prompt, options_) : nullptr),
      parser_(engine.shared_vocab(), prompt, options_.tools,
              [this](text::OutputEvent event) { on_event(std::move(event)); }),
      raw_(engine.shared_vocab()),
      last_token_(std::chrono::steady_clock::now()) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = options_.max_tokens;
  request.ignore_stops = options_.ignore_stops;
  request.sampling = options_.sampling;
  request.guide = guide_;
  sequence_ = engine_.submit(std::move(request), [this](text::TokenId token) { on_token(token); });
}

ChatTurn::~ChatTurn() {
  if (!sequence_->ended()) engine_.cancel(*sequence_);
}

void ChatTurn::on_token(text::TokenId token) {
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
  if (!options_.loop_guard || result_.loop || options_.ignore_stops) return;
  result_.loop = loops_.append(token);
  if (result_.loop) engine_.cancel(*sequence_);
}

void ChatTurn::on_raw_text(std::string text) {
  if (!text.empty()) on_event({.kind = text::OutputEvent::Kind::kAnswer, .text = std::move(text)});
}

void ChatTurn::on_event(text::OutputEvent event) {
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

TurnEnding ChatTurn::ending() const {
  const bool only_thoughts = in_thought() && answer_.empty();
  switch (sequence_->ending()) {
    case Ending::kStopToken:
      if (!result_.message.tool_calls.empty()) return TurnEnding::kToolCalls;
      return guide_ && guide_->spent_budget() ? TurnEnding::kThoughtBudget : TurnEnding::kComplete;
    case Ending::kLength:
      return only_thoughts ? TurnEnding::kThoughtsOnly : TurnEnding::kLength;
    case Ending::kContextFull:
      return TurnEnding::kContextFull;
    case Ending::kInterrupted:
      return result_.loop ? TurnEnding::kLoop : TurnEnding::kInterrupted;
    case Ending::kFailed:
    case Ending::kNone:
      break;
  }
  return TurnEnding::kFailed;
}

TurnResult ChatTurn::finish() {
  CARAT_CHECK(sequence_->ended());
  // Before the parser forgets where it was: a cut inside a thought is told from one inside the answer.
  const bool stopped = sequence_->ending() == Ending::kStopToken;
  const TurnEnding before = ending();
  if (options_.is_raw) {
    on_raw_text(raw_.flush());
  } else {
    parser_.finish(stopped ? text::OutputEnd::kStopped : text::OutputEnd::kCut);
  }
  // A call without its closing mark is only known now.
  result_.ending = stopped ? ending() : before;
  result_.message.content = std::move(answer_);
  return std::move(result_);
}

std::string ending_note(const TurnResult& result, const TurnOptions& options, uint32_t context) {
  switch (result.ending) {
    case TurnEnding::kComplete:
    case TurnEnding::kToolCalls:
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
