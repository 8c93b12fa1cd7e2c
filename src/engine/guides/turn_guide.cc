#include "engine/guides/turn_guide.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace carat::engine {

using text::Mark;

namespace {

// The last mark of a prompt says what part of a turn comes next.
std::optional<Mark> last_mark(const text::MarkTokens& marks, std::span<const text::TokenId> prompt) {
  for (size_t i = prompt.size(); i > 0; --i) {
    const auto mark = marks.mark_of(prompt[i - 1]);
    if (mark && *mark != Mark::kQuote) return mark;
  }
  return std::nullopt;
}

}  // namespace

bool TurnGuideOptions::is_needed() const {
  const bool has_stops = !ignore_stops || !stop_tokens.empty();
  return think_budget || can_end_thoughts || grammar || (calls.is_needed() && !is_raw) || (min_tokens > 0 && has_stops);
}

TurnGuide::TurnGuide(const text::Tokenizer& tokenizer, std::shared_ptr<const text::Vocab> vocab,
                     std::span<const text::TokenId> prompt, TurnGuideOptions options)
    : options_(std::move(options)), vocab_(std::move(vocab)), marks_(*vocab_), stops_(vocab_->stops()) {
  mask_.resize((vocab_->size() + 63) / 64);
  for (const text::TokenId token : options_.stop_tokens) {
    // A request may want to end at a mark that the turn cannot do without: then it comes in its place.
    if (vocab_->contains(token) && !vocab_->is_stop(token) && !marks_.mark_of(token)) stops_.push_back(token);
  }
  if (options_.is_raw) options_.calls = {};
  CARAT_CHECK(!is_required() || !options_.calls.tools.empty());
  if ((is_required() || !options_.calls.tools.empty()) &&
      (marks_[Mark::kCallOpen] < 0 || marks_[Mark::kCallClose] < 0)) {
    fail(ErrorCode::kUnsupported, "the vocabulary has no marks of tool calls, so there can be no rules for them");
  }
  if (options_.grammar) answer_.emplace(options_.grammar);
  if (!options_.calls.tools.empty()) call_.emplace(options_.calls.tools);
  const auto last = last_mark(marks_, prompt);
  const bool in_thought = last == Mark::kThoughtOpen;
  has_thought_ = in_thought || last == Mark::kThoughtClose;
  if (options_.is_raw) {
    part_ = answer_ ? Part::kAnswer : Part::kFree;
  } else if (in_thought) {
    part_ = Part::kThought;
  }
  begin_budget(tokenizer, in_thought);
}

void TurnGuide::begin_budget(const text::Tokenizer& tokenizer, bool in_thought) {
  if (options_.is_raw && answer_) return;  // there are no thoughts
  const bool has_channel = marks_[Mark::kThoughtOpen] >= 0 && marks_[Mark::kThoughtClose] >= 0;
  if (options_.think_budget || (options_.can_end_thoughts && has_channel)) {
    budget_.emplace(tokenizer, options_.think_budget.value_or(UINT64_MAX), in_thought);
  }
}

bool TurnGuide::may_call() const {
  if (options_.calls.mode == CallRules::Mode::kForbidden || options_.is_raw) return false;
  return !answer_ || is_required() || options_.may_call_instead || call_;
}

bool TurnGuide::is_end(text::TokenId token) const {
  return std::find(stops_.begin(), stops_.end(), token) != stops_.end();
}

// --- what comes next -------------------------------------------------------------------------------------------------

std::optional<text::TokenId> TurnGuide::forced() {
  if (must_end_thoughts_.load(std::memory_order_relaxed) && budget_) {
    const auto closing = budget_->end();
    forced_.insert(forced_.end(), closing.begin(), closing.end());
  }
  if (!forced_.empty()) return forced_.front();
  // Marks without an alternative need no look at the model's logits.
  if (part_ == Part::kStart && is_required() && !may_begin_thought()) return marks_[Mark::kCallOpen];
  if (part_ == Part::kCall && call_->is_complete()) return marks_[Mark::kCallClose];
  return std::nullopt;
}

std::span<const uint64_t> TurnGuide::allowed() {
  switch (part_) {
    case Part::kStart:
      return is_strict() ? start_mask() : free_mask();
    case Part::kThought:
      return is_strict() ? strict_thought_mask() : free_mask();
    case Part::kAnswer:
      return answer_ ? answer_mask() : free_mask();
    case Part::kCall:
      return call_mask();
    case Part::kFreeCall:
      return is_held_after_call() ? free_call_mask() : free_mask();
    case Part::kAfterCall:
      return is_held_after_call() ? after_call_mask() : free_mask();
    case Part::kFree:
      break;
  }
  return free_mask();
}

// The model may think first.
std::span<const uint64_t> TurnGuide::start_mask() {
  fill(false);
  if (!is_required()) {
    const auto answer = answer_->allowed().words();
    std::copy(answer.begin(), answer.end(), mask_.begin());
  }
  if (may_call()) set(marks_[Mark::kCallOpen], true);
  if (may_begin_thought()) set(marks_[Mark::kThoughtOpen], true);
  return with_stops(!is_required() && answer_->can_end());
}

// Something must follow a thought, so it ends with its own mark or where a call begins.
std::span<const uint64_t> TurnGuide::strict_thought_mask() {
  fill(true);
  for (const auto& [mark, text] : text::kMarkTexts) {
    const bool may_come = mark == Mark::kThoughtClose || mark == Mark::kQuote;
    if (!may_come) set(marks_[mark], mark == Mark::kCallOpen && may_call());
  }
  return with_stops(false);
}

std::span<const uint64_t> TurnGuide::answer_mask() {
  const auto words = answer_->allowed().words();
  if (options_.stop_tokens.empty() && tokens_ >= options_.min_tokens) return words;
  std::copy(words.begin(), words.end(), mask_.begin());
  return with_stops(answer_->can_end());
}

std::span<const uint64_t> TurnGuide::call_mask() {
  fill(false);
  call_->add_allowed(mask_);
  if (call_->is_complete()) set(marks_[Mark::kCallClose], true);
  return with_stops(false);
}

// Whatever the model writes, but nothing that begins another part of the turn.
std::span<const uint64_t> TurnGuide::free_call_mask() {
  fill(true);
  for (const auto& [mark, text] : text::kMarkTexts) {
    if (mark != Mark::kCallClose && mark != Mark::kQuote) set(marks_[mark], false);
  }
  return with_stops(true);
}

std::span<const uint64_t> TurnGuide::after_call_mask() {
  fill(false);
  if (options_.calls.is_parallel) set(marks_[Mark::kCallOpen], true);
  return with_stops(true);
}

std::span<const uint64_t> TurnGuide::free_mask() {
  const bool is_forbidden = options_.calls.mode == CallRules::Mode::kForbidden;
  if (!is_forbidden && tokens_ >= options_.min_tokens) return {};
  fill(true);
  if (is_forbidden) set(marks_[Mark::kCallOpen], false);
  return with_stops(true);
}

std::span<const uint64_t> TurnGuide::with_stops(bool may_stop) {
  if (may_stop) {
    for (const text::TokenId stop : stops_) set(stop, true);
    if (tokens_ >= options_.min_tokens) return mask_;
  }
  std::vector<text::TokenId> removed;
  for (const text::TokenId stop : stops_) {
    if (is_set(stop)) removed.push_back(stop);
    set(stop, false);
  }
  const bool is_empty = std::all_of(mask_.begin(), mask_.end(), [](uint64_t word) { return word == 0; });
  for (const text::TokenId stop : removed) set(stop, is_empty);
  return mask_;
}

void TurnGuide::fill(bool value) {
  std::fill(mask_.begin(), mask_.end(), value ? ~uint64_t{0} : 0);
  if (value && vocab_->size() % 64 != 0) mask_.back() = (uint64_t{1} << vocab_->size() % 64) - 1;
}

void TurnGuide::set(text::TokenId token, bool value) {
  if (token < 0) return;
  uint64_t& word = mask_[static_cast<size_t>(token) / 64];
  const uint64_t bit = uint64_t{1} << static_cast<size_t>(token) % 64;
  word = value ? word | bit : word & ~bit;
}

bool TurnGuide::is_set(text::TokenId token) const {
  return (mask_[static_cast<size_t>(token) / 64] >> static_cast<size_t>(token) % 64 & 1) != 0;
}

// --- what came -------------------------------------------------------------------------------------------------------

void TurnGuide::accept(text::TokenId token) {
  if (!forced_.empty()) forced_.pop_front();
  if (budget_) {
    const auto closing = budget_->append(token);
    forced_.insert(forced_.end(), closing.begin(), closing.end());
  }
  if (tokens_ < options_.min_tokens) ++tokens_;
  follow(token);
}

void TurnGuide::follow(text::TokenId token) {
  if (part_ == Part::kFree) return;
  if (is_end(token)) {
    part_ = Part::kFree;
    return;
  }
  const auto mark = marks_.mark_of(token);
  switch (part_) {
    case Part::kThought:
      if (mark == Mark::kCallOpen) return begin_call();
      if (mark && mark != Mark::kQuote && mark != Mark::kThoughtOpen) part_ = Part::kStart;
      return;
    case Part::kCall:
      if (mark != Mark::kCallClose) return call_->accept(token);
      part_ = Part::kAfterCall;
      return;
    case Part::kFreeCall:
      if (!mark || mark == Mark::kQuote) return;
      part_ = Part::kAfterCall;
      if (mark != Mark::kCallClose) follow_text(token);
      return;
    default:
      return follow_text(token);
  }
}

// Outside of thoughts and calls.
void TurnGuide::follow_text(text::TokenId token) {
  const bool is_answer_held = answer_ && part_ == Part::kAnswer;
  if (!options_.is_raw && !is_answer_held) {
    if (token == marks_[Mark::kThoughtOpen]) {
      part_ = Part::kThought;
      has_thought_ = true;
      return;
    }
    if (token == marks_[Mark::kCallOpen] && may_call()) return begin_call();
  }
  if (answer_ && part_ != Part::kAfterCall) answer_->accept(token);
  part_ = Part::kAnswer;
}

void TurnGuide::begin_call() {
  part_ = call_ ? Part::kCall : Part::kFreeCall;
  if (call_) call_->begin();
}

}  // namespace carat::engine
