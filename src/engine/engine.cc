#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/slot_choice.h"

namespace carat::engine {

namespace {

class TokenObserver : public SequenceObserver {
 public:
  explicit TokenObserver(std::function<void(text::TokenId)> on_token) : on_token_(std::move(on_token)) {}
  void on_token(text::TokenId token) override { on_token_(token); }

 private:
  std::function<void(text::TokenId)> on_token_;
};

}  // namespace

double EngineOptions::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void EngineOptions::check() const {
  drafts.check();
  if (!(std::isfinite(itl_target) && itl_target >= 0.0)) {
    carat::fail(ErrorCode::kBadArgument, "--itl-target {}: give milliseconds, or 0 for no target", 1e3 * itl_target);
  }
}

Engine::Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab,
               EngineOptions options)
    : executor_(std::move(executor)),
      vocab_(std::move(vocab)),
      options_(std::move(options)),
      governor_(options_.drafts.mode, options_.drafts.max_draft),
      slots_(executor_->options().sequences) {
  options_.check();
  const uint32_t V = executor_->model().config().V;
  if (vocab_->size() != V) {
    carat::fail(ErrorCode::kBadFile, "{}: tokenizer.ggml.tokens has {} entries but the embedding table has {} rows",
                executor_->model().file().path(), vocab_->size(), V);
  }
  const exec::ExecutorOptions& limits = executor_->options();
  if (limits.sequences == 0 || limits.chunk < limits.sequences || limits.outputs < limits.sequences) {
    carat::fail(ErrorCode::kBadArgument,
                "an engine with {} sequences needs at least one, and as many rows ({}) and outputs ({}) in a pass",
                limits.sequences, limits.chunk, limits.outputs);
  }
  if (exec::KeptPrefixes* const pages = executor_->prefixes()) prefixes_.emplace(*pages);
}

void Engine::set_drafts(const DraftOptions& drafts) {
  drafts.check();
  options_.drafts = drafts;
  governor_ = DraftGovernor(drafts.mode, drafts.max_draft);
}

void Engine::check(const Request& request) const {
  if (request.prompt.empty()) {
    carat::fail(ErrorCode::kBadArgument, "the prompt has no tokens; begin it at least with <bos>");
  }
  const uint32_t context = executor_->options().context;
  if (request.prompt.size() > context) {
    carat::fail(ErrorCode::kBadArgument, "the prompt has {} tokens but the context holds {}", request.prompt.size(),
                context);
  }
  for (const text::TokenId token : request.prompt) {
    if (token < 0 || static_cast<size_t>(token) >= vocab_->size()) {
      carat::fail(ErrorCode::kBadArgument, "the prompt holds token {} but the vocabulary has {} tokens", token,
                  vocab_->size());
    }
  }
  for (const text::TokenId token : request.stop_tokens) {
    if (!vocab_->contains(token)) {
      carat::fail(ErrorCode::kBadArgument, "stop token {}: the vocabulary has {} tokens", token, vocab_->size());
    }
  }
  if (request.logprobs && *request.logprobs > vocab_->size()) {
    carat::fail(ErrorCode::kBadArgument, "logprobs asks for the {} most probable tokens but the vocabulary has {}",
                *request.logprobs, vocab_->size());
  }
}

std::shared_ptr<Sequence> Engine::prepare(Request request) const {
  check(request);
  return std::make_shared<Sequence>(std::move(request), *vocab_);
}

void Engine::submit(std::shared_ptr<Sequence> sequence, std::shared_ptr<SequenceObserver> observer) {
  if (lost_) {
    carat::fail(ErrorCode::kDevice, "the engine is lost and takes no requests any more: {}", lost_->text);
  }
  if (is_draining_) carat::fail(ErrorCode::kInterrupted, "the engine is being drained and takes no new requests");
  sequence->draft_from_ngrams(options_.drafts);
  fair_share_.begin(sequence->request().client);
  waiting_.push_back({std::move(sequence), std::move(observer), options_.clock()});
}

std::shared_ptr<const Sequence> Engine::submit(Request request, std::function<void(text::TokenId)> on_token) {
  auto sequence = prepare(std::move(request));
  submit(sequence, on_token ? std::make_shared<TokenObserver>(std::move(on_token)) : nullptr);
  return sequence;
}

Engine::Job* Engine::find(const Sequence& sequence) {
  for (Slot& slot : slots_) {
    if (slot.job.sequence.get() == &sequence) return &slot.job;
  }
  for (Job& job : waiting_) {
    if (job.sequence.get() == &sequence) return &job;
  }
  return nullptr;
}

void Engine::cancel(const Sequence& sequence) {
  Job* job = find(sequence);
  if (job == nullptr || job->sequence->ended()) return;
  job->sequence->end(Ending::kCancelled);
  settle_and_report();
}

void Engine::fail(const Sequence& sequence, Failure failure) {
  Job* job = find(sequence);
  if (job == nullptr || job->sequence->ended()) return;
  job->sequence->fail(std::move(failure));
  settle_and_report();
}

void Engine::end_all() {
  for (const Job& job : waiting_) job.sequence->end(Ending::kInterrupted);
  end_running(Ending::kInterrupted, std::nullopt);
  settle_and_report();
}

void Engine::pause(const Sequence& sequence, bool is_paused) {
  if (Job* job = find(sequence); job != nullptr) job->sequence->is_paused_ = is_paused;
}

EngineFigures Engine::figures() const {
  EngineFigures figures;
  figures.waiting = static_cast<uint32_t>(waiting_.size());
  for (const Slot& slot : slots_) {
    figures.running += slot.job.sequence ? 1 : 0;
    figures.cached_tokens += slot.cached.size();
  }
  const exec::ExecutorOptions& limits = executor_->options();
  figures.cache_capacity = uint64_t{limits.sequences} * limits.context;
  if (!prefixes_) return figures;
  const exec::KeptPrefixes& pages = prefixes_->pages();
  figures.pages = pages.total();
  figures.held_pages = pages.held();
  figures.free_pages = pages.free();
  figures.global_page_bytes = pages.page_bytes(model::PageKind::kGlobal);
  figures.sliding_page_bytes = pages.page_bytes(model::PageKind::kSliding);
  figures.prefixes = prefixes_->figures();
  figures.preempted = preempted_;
  figures.cache_capacity = uint64_t{figures.pages.global} * pages.page_positions();
  figures.cached_tokens = uint64_t{figures.pages.global - figures.free_pages.global} * pages.page_positions();
  return figures;
}

bool Engine::has_work() const {
  const auto is_free = [](const Slot& slot) { return !slot.job.sequence; };
  const auto can_run = [](const Slot& slot) { return slot.job.sequence && !slot.job.sequence->is_paused_; };
  return is_running_ || std::any_of(slots_.begin(), slots_.end(), can_run) ||
         (!waiting_.empty() && std::any_of(slots_.begin(), slots_.end(), is_free));
}

void Engine::release_ended() {
  for (Slot& slot : slots_) {
    if (!slot.job.sequence || !slot.job.sequence->ended()) continue;
    fair_share_.end(slot.job.sequence->request().client);
    ended_.push_back(std::exchange(slot.job, {}));
  }
  std::erase_if(waiting_, [this](Job& job) {
    if (!job.sequence->ended()) return false;
    fair_share_.end(job.sequence->request().client);
    ended_.push_back(std::move(job));
    return true;
  });
}

// Tells those whose requests got a place. What one of them throws ends its own request.
void Engine::report_started() {
  while (!started_.empty()) {
    const std::vector<Job> started = std::exchange(started_, {});  // an observer may submit or end others
    for (const Job& job : started) {
      if (!job.observer) continue;
      try {
        job.observer->on_start();
      } catch (...) {
        if (!job.sequence->ended()) job.sequence->fail(Failure::current());
      }
    }
  }
}

// Tells those whose requests have ended. What one of them throws concerns a request that is over.
void Engine::report_ended() {
  report_started();
  while (!ended_.empty()) {
    const std::vector<Job> ended = std::exchange(ended_, {});  // an observer may end others
    for (const Job& job : ended) {
      if (!job.observer) continue;
      try {
        job.observer->on_end();
      } catch (...) {
        job.sequence->fail(Failure::current());
      }
    }
  }
}

// After something was ended from outside of a pass. Within a step its tokens may have yet to be handed out: the step
// reports then.
void Engine::settle_and_report() {
  release_ended();
  settle();
  if (!is_in_step_) report_ended();
}

void Engine::end_running(Ending ending, const std::optional<Failure>& failure) {
  for (Slot& slot : slots_) {
    if (!slot.job.sequence || slot.job.sequence->ended()) continue;
    if (failure) {
      slot.job.sequence->fail(*failure);
    } else {
      slot.job.sequence->end(ending);
    }
  }
  release_ended();
}

void Engine::lose(Failure failure) {
  lost_ = std::move(failure);
  for (const Job& job : waiting_) job.sequence->fail(*lost_);
  end_running(Ending::kFailed, lost_);
}

// What becomes of everybody when a pass went wrong. The executor has left the sequences in it at their old lengths.
void Engine::fail_pass(const std::exception_ptr& error) {
  is_running_ = false;
  shares_.clear();
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    if (known.code() == ErrorCode::kInterrupted) return end_all();
    if (known.code() == ErrorCode::kDevice) return lose(Failure::of(known));
    end_running(Ending::kFailed, Failure::of(known));
  } catch (const std::bad_alloc&) {
    end_running(Ending::kFailed, Failure::current());
  } catch (...) {
    lose(Failure::current());  // a mistake of ours: nobody knows what state the executor is in
  }
}

// How many tokens of the prompt the slot holds and may be asked for.
uint32_t Engine::shared_prefix(const Slot& slot, const Sequence& sequence) {
  const Request& request = sequence.request();
  if (!request.cache_prompt || request.cache_salt != slot.salt) return 0;
  const auto prompt = sequence.prompt();
  const auto parted = std::mismatch(slot.cached.begin(), slot.cached.end(), prompt.begin(), prompt.end());
  return static_cast<uint32_t>(parted.first - slot.cached.begin());
}

// The free slot for which least has to be run again, by this prompt and by who comes back for what the slot holds.
uint32_t Engine::slot_for(const Sequence& sequence) const {
  if (prefixes_) {  // all free ones are empty
    const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job.sequence; });
    return static_cast<uint32_t>(free - slots_.begin());
  }
  const auto prompt_tokens = static_cast<uint32_t>(sequence.prompt().size());
  std::vector<SlotOffer> offers;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].job.sequence) continue;
    const auto cached = static_cast<uint32_t>(slots_[i].cached.size());
    const uint32_t most = std::min(shared_prefix(slots_[i], sequence), prompt_tokens - 1);
    offers.push_back({i, cached, executor_->resumable(i, most), admitted_ - slots_[i].admitted});
  }
  return choose_slot(offers, prompt_tokens, static_cast<uint32_t>(slots_.size()));
}

void Engine::take_slot(uint32_t index, Job job) {
  Slot& slot = slots_[index];
  Sequence& sequence = *job.sequence;
  if (prefixes_) {
    begin_sequence(index, sequence);
  } else {
    sequence.prefix_shared_ = shared_prefix(slot, sequence);
    // The last token of the prompt is always run: its logits choose the first answer token.
    const uint32_t wanted =
        std::min<uint32_t>(sequence.prefix_shared_, static_cast<uint32_t>(sequence.prompt().size()) - 1);
    sequence.prefix_reused_ = executor_->truncate(index, wanted);
    if (sequence.prefix_reused_ < wanted) sequence.prefix_loss_ = PrefixLoss::kWindow;
    sequence.processed_ = sequence.prefix_reused_;
    slot.cached.resize(sequence.prefix_reused_);
  }
  slot.salt = sequence.request().cache_salt;
  slot.admitted = ++admitted_;
  slot.job = std::move(job);
  if (std::exchange(sequence.has_started_, true)) return;  // it had to give back its place before
  sequence.queue_seconds_ = options_.clock() - slot.job.submitted;
  started_.push_back(slot.job);
}

void Engine::admit() {
  if (prefixes_) park_ended();
  auto free = std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job.sequence; });
  for (; free > 0 && !waiting_.empty(); --free) {
    const auto next = next_waiting();
    if (!next) return;
    const uint32_t slot = slot_for(*waiting_[*next].sequence);
    Job job = std::move(waiting_[*next]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(*next));
    take_slot(slot, std::move(job));
  }
}

void Engine::admit_waiting() {
  if (lost_ || is_running_) return;
  admit();
  report_started();
  settle_and_report();
}

}  // namespace carat::engine
