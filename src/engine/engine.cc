#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"

namespace carat::engine {

namespace {
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

uint32_t shared_prefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint32_t>(parted.first - a.begin());
}
}  // namespace

Engine::Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab)
    : executor_(std::move(executor)), vocab_(std::move(vocab)), slots_(executor_->options().sequences) {
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
  auto sequence = std::make_shared<Sequence>(std::move(request), *vocab_);
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

// Adds what is pending of the slot's sequence, as far as the pass has room. The last pending row asks for logits.
void Engine::add_rows(uint32_t index) {
  const Sequence& sequence = *slots_[index].job.sequence;
  const uint32_t room = executor_->options().chunk - static_cast<uint32_t>(rows_.size());
  const uint32_t count = std::min(sequence.pending(), room);
  if (count == 0) return;
  const bool output = count == sequence.pending() && sequence.wants_token();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t position = sequence.processed() + i;
    rows_.push_back({sequence.tokens()[position], position, index, output && i + 1 == count});
  }
  shares_.push_back({index, count, sequence.in_prompt(), output});
}

void Engine::plan_pass() {
  rows_.clear();
  shares_.clear();
  std::vector<uint32_t> prompts;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Sequence* sequence = slots_[i].job.sequence.get();
    if (sequence == nullptr) continue;
    if (sequence->in_prompt()) {
      prompts.push_back(i);
    } else {
      add_rows(i);
    }
  }
  std::sort(prompts.begin(), prompts.end(),
            [this](uint32_t a, uint32_t b) { return slots_[a].admitted < slots_[b].admitted; });
  for (const uint32_t slot : prompts) add_rows(slot);
}

void Engine::sample_outputs() {
  const uint32_t context = executor_->options().context;
  uint32_t output = 0;
  for (const Share& share : shares_) {
    const Job& job = slots_[share.slot].job;
    Sequence& sequence = *job.sequence;
    if (share.output) {
      const text::TokenId token = sequence.choose(*executor_, output++);
      if (sequence.append(token, vocab_->is_stop(token), context) && job.on_token)
        calls_.emplace_back(job.on_token, token);
    } else if (!sequence.wants_token() && sequence.pending() == 0) {
      sequence.ending_ = Ending::kLength;
    }
  }
}

void Engine::run_pass() {
  const auto start = Clock::now();
  ++passes_;
  executor_->forward(rows_);
  for (const Share& share : shares_) {
    Slot& slot = slots_[share.slot];
    Sequence& sequence = *slot.job.sequence;
    const auto run = sequence.tokens().subspan(sequence.processed(), share.rows);
    slot.cached.insert(slot.cached.end(), run.begin(), run.end());
    slot.last_used = passes_;
    sequence.processed_ += share.rows;
  }
  sample_outputs();
  const double seconds = seconds_since(start);
  for (const Share& share : shares_) {
    Sequence& sequence = *slots_[share.slot].job.sequence;
    (share.prompt ? sequence.prompt_seconds_ : sequence.decode_seconds_) += seconds;
    if (!share.prompt) ++sequence.decode_passes_;
  }
}

bool Engine::step() {
  const std::atomic<bool>* cancelled = executor_->options().cancelled;
  if (cancelled != nullptr && cancelled->load()) {
    end_all_interrupted();
    return false;
  }
  admit();
  plan_pass();
  if (rows_.empty()) return false;
  calls_.clear();
  try {
    run_pass();
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
  release_ended();
  // After every choice of the pass has been made, because a callback may submit or cancel.
  for (const auto& [on_token, token] : calls_) on_token(token);
  return busy();
}

}  // namespace carat::engine
