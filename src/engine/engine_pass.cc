// The passes of an engine: what takes part in one, and what follows from its results.
#include <algorithm>
#include <atomic>
#include <tuple>

#include "base/error.h"
#include "engine/engine.h"

namespace carat::engine {

namespace {

// A pass that ends so soon, as a share of its time, after somebody began to wait for it may have ended before.
constexpr double kAtOnce = 0.02;

// Of the prompt rows of a pass, one in so many is for the prompt that came first.
constexpr uint32_t kOldestShare = 5;

// Returns what the action threw.
template <typename Action>
std::exception_ptr caught(const Action& action) {
  try {
    action();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

// Adds what is pending of the slot's sequence, at most so many rows, and what is drafted to follow it. The last pending
// row asks for logits, and so does every drafted one.
void Engine::add_rows(uint32_t index, uint32_t most, uint32_t longest_draft) {
  Sequence& sequence = *slots_[index].job.sequence;
  const uint32_t count = std::min(sequence.pending(), most);
  if (count == 0) return;
  Share share{index, slots_[index].job, count, sequence.is_reading()};
  share.open = count == sequence.pending() && sequence.wants_token();
  for (const Share& other : shares_) share.first_output += other.open ? 1 + other.drafted : 0;
  const uint32_t end = sequence.processed() + count;
  for (uint32_t position = sequence.processed(); position < end; ++position) {
    rows_.push_back({sequence.tokens()[position], position, index, share.open && position + 1 == end});
    if (!share.prompt) load_.add_decode_row(position);
  }
  if (share.prompt) load_.add_prompt_rows(sequence.processed(), count);
  sequence.index(end);
  if (!sequence.draft_.empty()) {
    share.match_length = sequence.index_->match()->length;
    share.drafted = std::min(static_cast<uint32_t>(sequence.draft_.size()), longest_draft);
    for (uint32_t i = 0; i < share.drafted; ++i) rows_.push_back({sequence.draft_[i], end + i, index, true});
  }
  shares_.push_back(std::move(share));
}

// Drafts for the sequences in these slots, which have one row each in a pass without prompts. Returns how much of a
// draft is worth running.
uint32_t Engine::plan_drafts(std::span<const uint32_t> slots) {
  offers_.clear();
  const exec::ExecutorOptions& limits = executor_->options();
  for (const uint32_t slot : slots) {
    Sequence& sequence = *slots_[slot].job.sequence;
    sequence.make_draft(*vocab_, options_.drafts.max_draft, limits.context);
    if (sequence.draft_.empty()) continue;
    offers_.push_back(
        {&sequence.acceptance_, sequence.index_->match()->length, static_cast<uint32_t>(sequence.draft_.size())});
  }
  const auto rows = static_cast<uint32_t>(slots.size());
  return governor_.choose(offers_, rows, std::min(limits.chunk, limits.outputs) - rows);
}

// Prompts as far as there is room, and beside decode rows as far as there is time. The shortest come first, so that
// they do not wait for long ones, but a fifth of the rows are for the one that came first.
void Engine::plan_prompts(std::vector<uint32_t> slots, bool beside_decode) {
  if (slots.empty()) return;
  const bool is_bounded = beside_decode && options_.itl_target > 0.0;
  const uint32_t room = executor_->options().chunk - static_cast<uint32_t>(rows_.size());
  const auto pending = [this](uint32_t slot) { return slots_[slot].job.sequence->pending(); };
  const auto came_before = [this](uint32_t a, uint32_t b) { return slots_[a].admitted < slots_[b].admitted; };
  const uint32_t oldest = *std::min_element(slots.begin(), slots.end(), came_before);
  const uint32_t for_oldest = std::min(pending(oldest), (room + kOldestShare - 1) / kOldestShare);
  std::sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(pending(a), slots_[a].admitted) < std::tuple(pending(b), slots_[b].admitted);
  });
  bool has_oldest = false;
  for (const uint32_t slot : slots) {
    if (!slots_[slot].job.sequence) continue;  // it had to give back its place
    const Sequence& sequence = *slots_[slot].job.sequence;
    const uint32_t left = executor_->options().chunk - static_cast<uint32_t>(rows_.size());
    has_oldest |= slot == oldest;
    const uint32_t held_back = has_oldest ? 0 : std::min(for_oldest, left);
    const uint32_t wanted = std::min(sequence.pending(), left - held_back);
    uint32_t most = wanted;
    if (is_bounded) {
      most = cost_.prompt_rows(load_, sequence.processed(), most, options_.itl_target);
      if (!has_oldest && most < wanted) most -= (most + kOldestShare - 1) / kOldestShare;
    }
    while (most > 0 && !reserve(slot, most)) most /= 2;
    add_rows(slot, most, 0);
    if (most < wanted && has_oldest) return;
  }
}

void Engine::plan_pass() {
  rows_.clear();
  shares_.clear();
  load_ = {};
  mask_seconds_ = 0.0;
  std::vector<uint32_t> generating, prompts;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Sequence* sequence = slots_[i].job.sequence.get();
    if (sequence == nullptr || sequence->is_paused_) continue;
    sequence->draft_.clear();
    (sequence->is_reading() ? prompts : generating).push_back(i);
  }
  const bool may_draft = options_.drafts.mode != DraftMode::kOff && prompts.empty() && !generating.empty();
  const uint32_t longest_draft = may_draft ? plan_drafts(generating) : 0;
  if (prefixes_) {  // who came first has the first claim on memory
    std::sort(generating.begin(), generating.end(),
              [this](uint32_t a, uint32_t b) { return slots_[a].admitted < slots_[b].admitted; });
  }
  for (const uint32_t slot : generating) {
    if (!slots_[slot].job.sequence) continue;  // it had to give back its place
    const auto drafted = static_cast<uint32_t>(slots_[slot].job.sequence->draft_.size());
    if (reserve(slot, 1 + std::min(drafted, longest_draft))) add_rows(slot, 1, longest_draft);
  }
  std::erase_if(prompts, [this](uint32_t slot) { return !slots_[slot].job.sequence; });
  plan_prompts(prompts, !generating.empty());
}

// Builds the next pass and starts it. False: there is nothing to run.
bool Engine::start_pass() {
  pass_start_ = options_.clock();
  admit();
  plan_pass();
  if (rows_.empty()) return false;
  executor_->start(rows_);
  is_running_ = true;
  return true;
}

// Waits for the pass that was started. What it did for sequences that have ended since is taken back.
void Engine::finish_pass() {
  is_running_ = false;
  const double waiting_since = options_.clock();
  executor_->finish();
  if (executor_->runs_in_background()) {
    const double now = options_.clock();
    was_waited_for_ = now - waiting_since > kAtOnce * (now - pass_start_);
  }
  std::erase_if(shares_, [this](const Share& share) {
    if (!share.job.sequence->ended()) return false;
    const auto kept = static_cast<uint32_t>(slots_[share.slot].cached.size());
    CARAT_CHECK(executor_->truncate(share.slot, kept) == kept);
    return true;
  });
  for (const Share& share : shares_) {
    Slot& slot = slots_[share.slot];
    Sequence& sequence = *share.job.sequence;
    const auto run = sequence.tokens().subspan(sequence.processed(), share.rows);
    slot.cached.insert(slot.cached.end(), run.begin(), run.end());
    sequence.processed_ += share.rows;
    sequence.drafts_.drafted += share.drafted;
    make_marks(share.slot);
    fair_share_.add(sequence.request().client, share.rows);
    if (!share.prompt) ++sequence.decode_passes_;
    if (!sequence.wants_token() && sequence.pending() == 0) sequence.end(Ending::kLength);
  }
}

// The pass that was started while the last tokens were handed out, or a new one. False: there is nothing to run.
bool Engine::run_pass() {
  if (is_running_) {
    finish_pass();
  } else {
    shares_.clear();
  }
  if (!shares_.empty()) return true;
  if (!start_pass()) return false;
  finish_pass();
  return true;
}

// Starts the next pass while the tokens of this one have yet to be handed out. Returns what went wrong: they come
// first.
std::exception_ptr Engine::start_ahead() {
  // Drafts are weighed against the time of passes, which must not hold what observers do.
  if (!executor_->runs_in_background() || options_.drafts.mode != DraftMode::kOff) return nullptr;
  return caught([this] { start_pass(); });
}

// A pass whose sequences have all ended is waited for: nobody else would.
void Engine::settle() {
  const auto is_alive = [](const Share& share) { return !share.job.sequence->ended(); };
  if (!is_running_ || std::any_of(shares_.begin(), shares_.end(), is_alive)) return;
  // Its rows never counted; but the device may be lost.
  if (const auto error = caught([this] { finish_pass(); })) fail_pass(error);
}

// One choice for a sequence, and whether the output for its next one is there already: it is when the choice was the
// drafted token. What goes wrong with the choice ends the sequence, except where the device failed.
void Engine::choose(Share& share, uint32_t round) {
  Sequence& sequence = *share.job.sequence;
  Slot& slot = slots_[share.slot];
  share.open = false;
  if (round > 0) {  // the last choice was drafted, so it has been run
    slot.cached.push_back(sequence.tokens().back());
    ++sequence.processed_;
    ++sequence.drafts_.accepted;
  }
  const uint32_t output = share.first_output + round;
  if (!executor_->is_finite(output)) {
    slot.cached.clear();  // its keys and values are as bad
    return sequence.fail(Failure::of(exec::non_finite_error(*executor_)));
  }
  text::TokenId token = 0;
  std::optional<ChoiceLogprobs> logprobs;
  const double masked_before = sequence.mask_seconds();
  try {
    token = sequence.choose(*executor_, output, options_.clock);
    mask_seconds_ += sequence.mask_seconds() - masked_before;
    if (const auto& alternatives = sequence.request().logprobs) {
      logprobs = logprobs_of(*executor_, output, token, *alternatives);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kDevice) throw;
    return sequence.fail(Failure::of(error));
  } catch (const std::exception&) {
    return sequence.fail(Failure::current());
  }
  if (sequence.append(token, *vocab_, executor_->options().context)) {
    calls_.push_back({share.job, token, std::move(logprobs)});
  }
  const bool is_drafted = round < sequence.draft_.size() && sequence.draft_[round] == token;
  ++share.choices;
  share.as_drafted += is_drafted ? 1 : 0;
  if (!share.prompt) ++sequence.decode_tokens_;
  share.open = is_drafted && round < share.drafted && !sequence.ended();
}

// One choice for every sequence that has an output for it. Returns whether there may be another round.
bool Engine::choose_round(uint32_t round) {
  bool is_any_open = false;
  for (Share& share : shares_) {
    if (share.job.sequence->ended()) share.open = false;  // by what its observer did after the last round
    if (share.open) {
      choose(share, round);
    } else if (round == 0 && share.prompt && !share.job.sequence->ended()) {
      calls_.push_back({share.job, std::nullopt, std::nullopt});
    }
    is_any_open |= share.open;
  }
  return is_any_open;
}

// After every choice of a round has been made, because an observer may submit or cancel.
void Engine::hand_out() {
  report_started();
  for (const Call& call : calls_) {
    if (!call.job.observer) continue;
    try {
      if (call.token) {
        if (call.logprobs) call.job.observer->on_logprobs(*call.logprobs);
        call.job.observer->on_token(*call.token);
      } else {
        call.job.observer->on_prompt();
      }
    } catch (...) {
      call.job.sequence->fail(Failure::current());
    }
  }
  calls_.clear();
  release_ended();
}

// Forgets the keys and values of drafted tokens that were not chosen. The executor can always take back rows of the
// pass it has just run.
void Engine::take_back_rejected() {
  for (const Share& share : shares_) {
    if (share.drafted == 0) continue;
    const auto kept = static_cast<uint32_t>(slots_[share.slot].cached.size());
    if (executor_->length(share.slot) > kept) CARAT_CHECK(executor_->truncate(share.slot, kept) == kept);
  }
}

void Engine::learn(double seconds) {
  uint32_t tokens = 0;
  for (const Share& share : shares_) tokens += share.choices;
  last_pass_ = {last_pass_.number + 1, load_.decode_rows, load_.prompt_rows, tokens, seconds, mask_seconds_};
  const auto rows = static_cast<uint32_t>(rows_.size());
  if (load_.decode_rows + load_.prompt_rows == rows) cost_.record(load_, seconds, was_waited_for_);
  if (options_.drafts.mode == DraftMode::kOff || load_.prompt_rows > 0) return;
  for (const Share& share : shares_) {
    Sequence& sequence = *share.job.sequence;
    // Without drafted rows there was one choice, and the draft had its first token.
    const uint32_t tested = std::min<uint32_t>(share.choices, static_cast<uint32_t>(sequence.draft_.size()));
    if (tested > 0) sequence.acceptance_.record(share.match_length, tested, share.as_drafted);
  }
  governor_.record({static_cast<uint32_t>(shares_.size()), rows, tokens, seconds});
}

void Engine::add_seconds(double seconds) {
  for (const Share& share : shares_) {
    Sequence& sequence = *share.job.sequence;
    (share.prompt ? sequence.prompt_seconds_ : sequence.decode_seconds_) += seconds;
  }
}

// The choices of the pass that was just finished, round by round.
void Engine::choose_and_hand_out() {
  double start = pass_start_;
  double pass_seconds = 0.0;
  bool is_open = true;
  std::exception_ptr failure;
  for (uint32_t round = 0; is_open && !failure; ++round) {
    failure = caught([&] { is_open = choose_round(round); });
    const double seconds = options_.clock() - start;
    add_seconds(seconds);
    pass_seconds += seconds;
    release_ended();
    if (!is_open && !failure) {
      failure = caught([&] {
        take_back_rejected();
        learn(pass_seconds);
      });
    }
    if (!is_open && !failure) failure = start_ahead();
    hand_out();
    start = options_.clock();
  }
  if (failure) fail_pass(failure);
}

bool Engine::step() {
  if (lost_) return false;
  const std::atomic<bool>* cancelled = executor_->options().cancelled;
  if (cancelled != nullptr && cancelled->load()) {
    end_all();
    return false;
  }
  is_in_step_ = true;
  bool has_run = false;
  if (const auto error = caught([&] { has_run = run_pass(); })) {
    fail_pass(error);
  } else if (has_run) {
    choose_and_hand_out();
  }
  is_in_step_ = false;
  settle_and_report();
  return !lost_ && has_work();
}

}  // namespace carat::engine
