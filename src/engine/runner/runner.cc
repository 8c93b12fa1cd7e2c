#include "engine/runner/runner.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace carat::engine {

// Collects what happens to one request during a pass.
class Runner::Entry : public SequenceObserver {
 public:
  Entry(Runner& runner, Submission submission)
      : id(submission.id),
        sequence(std::move(submission.sequence)),
        sink(std::move(submission.sink)),
        runner_(runner) {}

  void on_start() override { runner_.touch(*this); }
  void on_token(text::TokenId token) override {
    tokens.push_back(token);
    runner_.touch(*this);
  }
  void on_logprobs(const ChoiceLogprobs& of_token) override { logprobs.push_back(of_token); }
  void on_prompt() override { runner_.touch(*this); }
  void on_end() override {
    has_ended = true;
    runner_.touch(*this);
  }

  const RequestId id;
  const std::shared_ptr<Sequence> sequence;
  const std::shared_ptr<RequestSink> sink;
  RequestEnd how_it_ended() const {
    if (refusal) return {.ending = Ending::kFailed, .failure = refusal, .figures = sequence->figures()};
    return {sequence->ending(), sequence->failure(), sequence->stop_token(), sequence->figures()};
  }

  std::vector<text::TokenId> tokens;
  std::vector<ChoiceLogprobs> logprobs;
  std::optional<Failure> refusal;  // by the engine, of a request the runner had accepted
  bool has_ended = false;
  bool is_touched = false;

 private:
  Runner& runner_;
};

Runner::Runner(Engine engine, RunnerOptions options) : engine_(std::move(engine)), options_(std::move(options)) {
  snapshot_.cache_capacity = engine_.figures().cache_capacity;
  try {
    thread_ = std::thread([this] { thread_main(); });
  } catch (const std::system_error& error) {
    fail(ErrorCode::kOutOfMemory, "cannot start the engine's thread: {}", error.what());
  }
}

Runner::~Runner() {
  stop();
  wait();
}

// --- from any thread -------------------------------------------------------------------------------------------------

void Runner::refuse_if_closed() const {
  if (lost_) fail(ErrorCode::kDevice, "the engine is lost and takes no requests any more: {}", lost_->text);
  if (is_stopping_) fail(ErrorCode::kInterrupted, "the engine was stopped and takes no new requests");
  if (is_draining_) fail(ErrorCode::kInterrupted, "the engine is being drained and takes no new requests");
}

void Runner::post(const std::function<void()>& write) {
  {
    const std::lock_guard lock(mailbox_);
    write();
  }
  has_mail_.notify_one();
}

RequestId Runner::submit(Request request, std::shared_ptr<RequestSink> sink) {
  CARAT_CHECK(sink != nullptr);
  auto sequence = engine_.prepare(std::move(request));
  RequestId id = 0;
  post([&] {
    refuse_if_closed();
    id = ++last_id_;
    mail_.submissions.push_back({id, std::move(sequence), std::move(sink)});
  });
  return id;
}

void Runner::cancel(RequestId id) {
  post([&] { mail_.cancels.push_back(id); });
}

void Runner::pause(RequestId id) {
  post([&] { mail_.pauses.emplace_back(id, true); });
}

void Runner::resume(RequestId id) {
  post([&] { mail_.pauses.emplace_back(id, false); });
}

void Runner::drain() {
  post([&] { is_draining_ = true; });
}

void Runner::stop() {
  if (options_.cancelled != nullptr) options_.cancelled->store(true);
  post([&] { is_stopping_ = true; });
}

void Runner::wait() {
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

RunnerSnapshot Runner::snapshot() const {
  const std::lock_guard lock(shown_);
  return snapshot_;
}

// --- the runner's thread ---------------------------------------------------------------------------------------------

void Runner::thread_main() {
  try {
    run_until_closed();
  } catch (...) {
    abandon(Failure::current());
  }
}

void Runner::run_until_closed() {
  bool has_work = false;
  while (take_mail(!has_work)) {
    open_mail();
    engine_.admit_waiting();
    deliver();
    has_work = engine_.step();
    note_pass();
    deliver();
    note_loss();
    publish(!has_work);
  }
  publish(true);
}

// False: the mailbox is closed, and nothing is left to do.
bool Runner::take_mail(bool may_sleep) {
  std::unique_lock lock(mailbox_);
  const auto is_over = [this] {
    return (is_stopping_ || is_draining_ || lost_) && mail_.is_empty() && entries_.empty();
  };
  const auto must_stop = [this] { return is_stopping_ && !has_stopped_; };
  if (may_sleep) has_mail_.wait(lock, [&] { return !mail_.is_empty() || must_stop() || is_over(); });
  if (is_over()) return false;
  std::swap(mail_, taken_);
  must_end_all_ = must_stop();
  state_ = lost_          ? RunnerState::kLost
           : is_stopping_ ? RunnerState::kStopped
           : is_draining_ ? RunnerState::kDraining
                          : RunnerState::kRunning;
  has_stopped_ |= must_end_all_;
  return true;
}

void Runner::open_mail() {
  for (Submission& submission : taken_.submissions) admit(std::move(submission));
  for (const RequestId id : taken_.cancels) {
    if (const auto entry = entries_.find(id); entry != entries_.end()) engine_.cancel(*entry->second->sequence);
  }
  for (const auto& [id, is_paused] : taken_.pauses) {
    if (const auto entry = entries_.find(id); entry != entries_.end()) {
      engine_.pause(*entry->second->sequence, is_paused);
    }
  }
  taken_.clear();
  if (std::exchange(must_end_all_, false)) engine_.end_all();
}

void Runner::admit(Submission submission) {
  ++totals_.submitted;
  std::shared_ptr<Entry> entry;
  try {
    entry = std::make_shared<Entry>(*this, submission);
    // Twice: what is handed out may bring more. Nothing has to be allocated then.
    touched_.reserve(2 * (entries_.size() + 1));
    entries_.emplace(entry->id, entry);
  } catch (const std::bad_alloc&) {
    return tell_end(submission.id, *submission.sink, {.ending = Ending::kFailed, .failure = Failure::current()});
  }
  try {
    engine_.submit(entry->sequence, entry);
  } catch (...) {  // the engine was lost after the request had been accepted, or has no memory for it
    entry->refusal = Failure::current();
    entry->on_end();
  }
}

// The last word about a request that has no entry.
void Runner::tell_end(RequestId id, RequestSink& sink, const RequestEnd& end) noexcept {
  try {
    sink.update({.id = id, .end = &end});
  } catch (...) {
    // Sinks take an end whatever happens; one that does not has nobody who listens.
  }
}

void Runner::touch(Entry& entry) {
  if (!std::exchange(entry.is_touched, true)) touched_.push_back(&entry);
}

// Hands out what has happened since the last time. A sink that throws makes more to hand out.
void Runner::deliver() {
  if (touched_.empty()) return;
  for (size_t i = 0; i < touched_.size(); ++i) hand_over(*touched_[i]);
  touched_.clear();
  if (options_.after_updates) options_.after_updates();
}

void Runner::hand_over(Entry& entry) {
  entry.is_touched = false;
  const Sequence& sequence = *entry.sequence;
  RequestEnd end;
  if (entry.has_ended) end = entry.how_it_ended();
  const RequestUpdate update{
      .id = entry.id,
      .tokens = entry.tokens,
      .logprobs = entry.logprobs,
      .has_started = sequence.has_started(),
      .queue_seconds = sequence.queue_seconds(),
      .prompt_processed = std::min<uint32_t>(sequence.processed(), static_cast<uint32_t>(sequence.prompt().size())),
      .prompt_shared = sequence.prefix_shared(),
      .prompt_reused = sequence.prefix_reused(),
      .prompt_loss = sequence.prefix_loss(),
      .prompt_seconds = sequence.prompt_seconds(),
      .end = entry.has_ended ? &end : nullptr};
  try {
    entry.sink->update(update);
  } catch (...) {
    if (!entry.has_ended) engine_.fail(sequence, Failure::current());
  }
  entry.tokens.clear();
  entry.logprobs.clear();
  if (update.end == nullptr) return;
  totals_.add_end(end.ending, end.figures);
  entries_.erase(entry.id);
}

void Runner::note_pass() {
  const PassFigures& pass = engine_.last_pass();
  if (pass.number == noted_pass_) return;
  noted_pass_ = pass.number;
  totals_.add_pass(pass);
  const double now = engine_.now();
  prompt_rate_.add(now, pass.prompt_rows);
  generated_rate_.add(now, pass.tokens);
}

void Runner::note_loss() {
  if (!engine_.lost() || state_ == RunnerState::kLost) return;
  state_ = RunnerState::kLost;
  const std::lock_guard lock(mailbox_);
  lost_ = engine_.lost();
}

// A pass does not wait for whoever is reading; before the thread sleeps there is time, and no later chance.
void Runner::publish(bool is_idle) {
  std::unique_lock lock(shown_, std::defer_lock);
  if (is_idle) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  const EngineFigures figures = engine_.figures();
  snapshot_.seconds = engine_.now();
  snapshot_.state = state_;
  if (state_ == RunnerState::kLost && !snapshot_.lost) snapshot_.lost = engine_.lost();
  snapshot_.running = figures.running;
  snapshot_.waiting = figures.waiting;
  snapshot_.cached_tokens = figures.cached_tokens;
  snapshot_.pages = figures.pages;
  snapshot_.held_pages = figures.held_pages;
  snapshot_.free_pages = figures.free_pages;
  snapshot_.global_page_bytes = figures.global_page_bytes;
  snapshot_.sliding_page_bytes = figures.sliding_page_bytes;
  snapshot_.prefixes = figures.prefixes;
  snapshot_.preempted = figures.preempted;
  snapshot_.last_pass_seconds = engine_.last_pass().seconds;
  snapshot_.prompt_tokens_per_second = is_idle ? 0.0 : prompt_rate_.at(snapshot_.seconds);
  snapshot_.generated_tokens_per_second = is_idle ? 0.0 : generated_rate_.at(snapshot_.seconds);
  snapshot_.totals = totals_;
}

// The thread cannot go on, by a mistake of ours or for want of memory: everybody is told.
// Nothing is allocated here but copies of the failure's words, which are short where memory is short.
void Runner::abandon(const Failure& failure) {
  Mail mail;
  {
    const std::lock_guard lock(mailbox_);
    lost_ = failure;
    std::swap(mail, mail_);
  }
  const RequestEnd end{.ending = Ending::kFailed, .failure = failure};
  for (const auto& [id, entry] : entries_) tell_end(id, *entry->sink, end);
  for (const Mail* unopened : {&taken_, &mail}) {
    for (const Submission& submission : unopened->submissions) {
      if (submission.sink) tell_end(submission.id, *submission.sink, end);
    }
  }
  try {
    if (options_.after_updates) options_.after_updates();
  } catch (...) {
    // It may be what went wrong.
  }
  const std::lock_guard lock(shown_);
  snapshot_.state = RunnerState::kLost;
  snapshot_.lost = failure;
}

}  // namespace carat::engine
