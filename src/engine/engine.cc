#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"

namespace carat::engine {

namespace {
uint32_t shared_prefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint32_t>(parted.first - a.begin());
}
}  // namespace

double Engine::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Engine::Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab, LookupOptions lookup,
               Clock clock)
    : executor_(std::move(executor)),
      vocab_(std::move(vocab)),
      lookup_(lookup),
      governor_(lookup.mode, lookup.max_draft),
      clock_(std::move(clock)),
      slots_(executor_->options().sequences) {
  lookup_.check();
  const uint32_t V = executor_->model().config().V;
  if (vocab_->size() != V) {
    fail(ErrorCode::kBadFile, "{}: tokenizer.ggml.tokens has {} entries but the embedding table has {} rows",
         executor_->model().file().path(), vocab_->size(), V);
  }
  const exec::ExecutorOptions& options = executor_->options();
  if (options.sequences == 0 || options.chunk < options.sequences || options.outputs < options.sequences) {
    fail(ErrorCode::kBadArgument,
         "an engine with {} sequences needs at least one, and as many rows ({}) and outputs ({}) "
         "in a pass",
         options.sequences, options.chunk, options.outputs);
  }
}

void Engine::set_lookup(const LookupOptions& lookup) {
  lookup.check();
  lookup_ = lookup;
  governor_ = LookupGovernor(lookup.mode, lookup.max_draft);
}

void Engine::check(const Request& request) const {
  if (request.prompt.empty()) fail(ErrorCode::kBadArgument, "the prompt has no tokens; begin it at least with <bos>");
  const uint32_t context = executor_->options().context;
  if (request.prompt.size() > context) {
    fail(ErrorCode::kBadArgument, "the prompt has {} tokens but the context holds {}", request.prompt.size(), context);
  }
  for (const text::TokenId token : request.prompt) {
    if (token < 0 || static_cast<size_t>(token) >= vocab_->size()) {
      fail(ErrorCode::kBadArgument, "the prompt holds token {} but the vocabulary has {} tokens", token,
           vocab_->size());
    }
  }
}

std::shared_ptr<const Sequence> Engine::submit(Request request, OnToken on_token) {
  check(request);
  auto sequence = std::make_shared<Sequence>(std::move(request), *vocab_, lookup_);
  waiting_.push_back({sequence, std::move(on_token)});
  return sequence;
}

void Engine::cancel(const Sequence& sequence) {
  for (Slot& slot : slots_) {
    if (slot.job.sequence.get() == &sequence) slot.job.sequence->ending_ = Ending::kInterrupted;
  }
  for (const Job& job : waiting_) {
    if (job.sequence.get() == &sequence) job.sequence->ending_ = Ending::kInterrupted;
  }
  release_ended();
  settle();
}

bool Engine::busy() const {
  return !waiting_.empty() || std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.job.sequence; });
}

void Engine::release_ended() {
  for (Slot& slot : slots_) {
    if (slot.job.sequence && slot.job.sequence->ended()) slot.job = {};
  }
  std::erase_if(waiting_, [](const Job& job) { return job.sequence->ended(); });
}

void Engine::end_running(Ending ending) {
  for (Slot& slot : slots_) {
    if (slot.job.sequence) slot.job.sequence->ending_ = ending;
  }
  release_ended();
}

void Engine::end_all_interrupted() {
  for (const Job& job : waiting_) job.sequence->ending_ = Ending::kInterrupted;
  end_running(Ending::kInterrupted);
}

// The free slot that shares most of the prompt; among equals the one unused for longest.
uint32_t Engine::slot_for(std::span<const text::TokenId> prompt) const {
  std::optional<uint32_t> best;
  uint32_t best_shared = 0;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].job.sequence) continue;
    const uint32_t shared = shared_prefix(slots_[i].cached, prompt);
    if (!best || shared > best_shared || (shared == best_shared && slots_[i].last_used < slots_[*best].last_used)) {
      best = i;
      best_shared = shared;
    }
  }
  CARAT_CHECK(best.has_value());
  return *best;
}

void Engine::take_slot(uint32_t index, Job job) {
  Slot& slot = slots_[index];
  Sequence& sequence = *job.sequence;
  const std::span<const text::TokenId> prompt = sequence.prompt();
  sequence.prefix_shared_ = shared_prefix(slot.cached, prompt);
  // The last token of the prompt is always run: its logits choose the first answer token.
  const uint32_t wanted = std::min<uint32_t>(sequence.prefix_shared_, static_cast<uint32_t>(prompt.size()) - 1);
  sequence.prefix_reused_ = executor_->truncate(index, wanted);
  sequence.processed_ = sequence.prefix_reused_;
  slot.cached.resize(sequence.prefix_reused_);
  slot.admitted = admitted_++;
  slot.job = std::move(job);
}

void Engine::admit() {
  auto free = std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job.sequence; });
  for (; free > 0 && !waiting_.empty(); --free) {
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    const uint32_t slot = slot_for(job.sequence->prompt());
    take_slot(slot, std::move(job));
  }
}

// Adds what is pending of the slot's sequence, as far as the pass has room, and what is drafted to follow it. The last
// pending row asks for logits, and so does every drafted one.
void Engine::add_rows(uint32_t index, uint32_t longest_draft) {
  Sequence& sequence = *slots_[index].job.sequence;
  const uint32_t room = executor_->options().chunk - static_cast<uint32_t>(rows_.size());
  const uint32_t count = std::min(sequence.pending(), room);
  if (count == 0) return;
  Share share{index, slots_[index].job, count, sequence.in_prompt()};
  share.open = count == sequence.pending() && sequence.wants_token();
  for (const Share& other : shares_) share.first_output += other.open ? 1 + other.drafted : 0;
  const uint32_t end = sequence.processed() + count;
  for (uint32_t position = sequence.processed(); position < end; ++position) {
    rows_.push_back({sequence.tokens()[position], position, index, share.open && position + 1 == end});
  }
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
  const exec::ExecutorOptions& options = executor_->options();
  for (const uint32_t slot : slots) {
    Sequence& sequence = *slots_[slot].job.sequence;
    sequence.make_draft(*vocab_, lookup_.max_draft, options.context);
    if (sequence.draft_.empty()) continue;
    offers_.push_back(
        {&sequence.acceptance_, sequence.index_->match()->length, static_cast<uint32_t>(sequence.draft_.size())});
  }
  const auto rows = static_cast<uint32_t>(slots.size());
  return governor_.choose(offers_, rows, std::min(options.chunk, options.outputs) - rows);
}

void Engine::plan_pass() {
  rows_.clear();
  shares_.clear();
  std::vector<uint32_t> generating, prompts;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Sequence* sequence = slots_[i].job.sequence.get();
    if (sequence == nullptr) continue;
    sequence->draft_.clear();
    (sequence->in_prompt() ? prompts : generating).push_back(i);
  }
  const bool may_draft = lookup_.mode != LookupMode::kOff && prompts.empty() && !generating.empty();
  const uint32_t longest_draft = may_draft ? plan_drafts(generating) : 0;
  for (const uint32_t slot : generating) add_rows(slot, longest_draft);
  std::sort(prompts.begin(), prompts.end(),
            [this](uint32_t a, uint32_t b) { return slots_[a].admitted < slots_[b].admitted; });
  for (const uint32_t slot : prompts) add_rows(slot, 0);
}

// Builds the next pass and starts it. False: there is nothing to run.
bool Engine::start_pass() {
  pass_start_ = clock_();
  admit();
  plan_pass();
  if (rows_.empty()) return false;
  ++passes_;
  executor_->start(rows_);
  is_running_ = true;
  return true;
}

// Waits for the pass that was started. What it did for sequences that have ended since is taken back.
void Engine::finish_pass() {
  is_running_ = false;
  executor_->finish();
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
    slot.last_used = passes_;
    sequence.processed_ += share.rows;
    sequence.lookup_.drafted += share.drafted;
    if (!share.prompt) ++sequence.decode_passes_;
    if (!sequence.wants_token() && sequence.pending() == 0) sequence.ending_ = Ending::kLength;
  }
}

// Starts the next pass while the tokens of this one have yet to be handed out. Returns what went wrong: they come
// first.
std::exception_ptr Engine::start_ahead() {
  // Drafts are weighed against the time of passes, which must not hold what callbacks do.
  if (!executor_->runs_in_background() || lookup_.mode != LookupMode::kOff) return nullptr;
  try {
    start_pass();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// A pass whose sequences have all ended is waited for: nobody else would.
void Engine::settle() {
  const auto is_alive = [](const Share& share) { return !share.job.sequence->ended(); };
  if (!is_running_ || std::any_of(shares_.begin(), shares_.end(), is_alive)) return;
  try {
    finish_pass();
  } catch (const Error&) {
    // It concerned nobody any more; its rows never counted.
  }
}

// One choice for a sequence, and whether the output for its next one is there already: it is when the choice was the
// drafted token.
void Engine::choose(Share& share, uint32_t round) {
  Sequence& sequence = *share.job.sequence;
  if (round > 0) {  // the last choice was drafted, so it has been run
    slots_[share.slot].cached.push_back(sequence.tokens().back());
    ++sequence.processed_;
    ++sequence.lookup_.accepted;
  }
  const text::TokenId token = sequence.choose(*executor_, share.first_output + round);
  if (sequence.append(token, vocab_->is_stop(token), executor_->options().context) && share.job.on_token) {
    calls_.emplace_back(share.job.on_token, token);
  }
  const bool is_drafted = round < sequence.draft_.size() && sequence.draft_[round] == token;
  ++share.choices;
  share.as_drafted += is_drafted ? 1 : 0;
  if (!share.prompt) ++sequence.decode_tokens_;
  share.open = is_drafted && round < share.drafted && !sequence.ended();
}

// One choice for every sequence that has an output for it. Returns whether there may be another round.
bool Engine::choose_round(uint32_t round) {
  calls_.clear();
  bool is_any_open = false;
  for (Share& share : shares_) {
    // What was called after the last round may have ended it.
    if (!share.open || share.job.sequence->ended()) {
      share.open = false;
      continue;
    }
    choose(share, round);
    is_any_open |= share.open;
  }
  return is_any_open;
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
  const bool has_prompt = std::any_of(shares_.begin(), shares_.end(), [](const Share& s) { return s.prompt; });
  if (lookup_.mode == LookupMode::kOff || has_prompt) return;
  LookupGovernor::Pass pass{static_cast<uint32_t>(shares_.size()), static_cast<uint32_t>(rows_.size()), 0, seconds};
  for (const Share& share : shares_) {
    Sequence& sequence = *share.job.sequence;
    pass.tokens += share.choices;
    // Without drafted rows there was one choice, and the draft had its first token.
    const uint32_t tested = std::min<uint32_t>(share.choices, static_cast<uint32_t>(sequence.draft_.size()));
    if (tested > 0) sequence.acceptance_.record(share.match_length, tested, share.as_drafted);
  }
  governor_.record(pass);
}

void Engine::add_seconds(double seconds) {
  for (const Share& share : shares_) {
    Sequence& sequence = *share.job.sequence;
    (share.prompt ? sequence.prompt_seconds_ : sequence.decode_seconds_) += seconds;
  }
}

// Runs a part of a pass. False when it was interrupted; then all sequences have ended.
bool Engine::survives(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      end_all_interrupted();
      return false;
    }
    end_running(Ending::kFailed);
    throw;
  } catch (...) {
    end_running(Ending::kFailed);
    throw;
  }
}

bool Engine::step() {
  const std::atomic<bool>* cancelled = executor_->options().cancelled;
  if (cancelled != nullptr && cancelled->load()) {
    end_all_interrupted();
    settle();
    return false;
  }
  if (!is_running_) {
    shares_.clear();
  } else if (!survives([this] { finish_pass(); })) {
    return false;
  }
  if (shares_.empty()) {
    bool is_any = false;
    if (!survives([&] { is_any = start_pass(); })) return false;
    if (!is_any) return false;
    if (!survives([this] { finish_pass(); })) return false;
  }
  double start = pass_start_;
  double pass_seconds = 0.0;
  std::exception_ptr failure;
  bool is_open = true;
  for (uint32_t round = 0; is_open; ++round) {
    if (!survives([&] { is_open = choose_round(round); })) return false;
    const double seconds = clock_() - start;
    add_seconds(seconds);
    pass_seconds += seconds;
    release_ended();
    if (!is_open) {
      take_back_rejected();
      learn(pass_seconds);
      failure = start_ahead();
    }
    // After every choice of the round has been made, because a callback may submit or cancel.
    for (const auto& [on_token, token] : calls_) on_token(token);
    start = clock_();
  }
  if (failure && !survives([&] { std::rethrow_exception(failure); })) return false;
  settle();
  return busy();
}

}  // namespace carat::engine
