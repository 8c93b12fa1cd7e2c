#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/runner/runner_snapshot.h"

namespace carat::engine {

using RequestId = uint64_t;  // of one runner; never used twice

// How a request ended, and what it took.
struct RequestEnd {
  Ending ending = Ending::kNone;
  std::optional<Failure> failure = {};  // there is one where the ending is kFailed
  text::TokenId stop_token = -1;        // as of Sequence
  SequenceFigures figures = {};
};

// What one pass, or what was asked of the runner meanwhile, brought to one request.
struct RequestUpdate {
  RequestId id = 0;
  std::span<const text::TokenId> tokens = {};  // chosen, in order; valid during the call
  // One for each of the tokens where the request asked for them, otherwise empty; valid during the call.
  std::span<const ChoiceLogprobs> logprobs = {};
  // False while the request waits for its place in the executor. The first update in which it is true comes before
  // anything of the prompt is run, unless a pass for others was running when the request got its place.
  bool has_started = false;
  double queue_seconds = 0.0;  // waited until then
  // Of the prompt: tokens in the cache so far, those reused included, how many were known to the cache, how many of
  // these are reused, and the time the prompt's passes took.
  uint32_t prompt_processed = 0;
  uint32_t prompt_shared = 0;
  uint32_t prompt_reused = 0;
  PrefixLoss prompt_loss = PrefixLoss::kNone;  // why the reused ones are fewer
  double prompt_seconds = 0.0;
  const RequestEnd* end = nullptr;  // set in the last update, and only there; valid during the call
};

// Where the updates of one request go. Called on the runner's thread, which runs no pass on this machine's processors
// meanwhile: whatever takes time belongs to another thread. There is at most one call for each pass, and exactly one
// with an end. An exception that leaves a call ends the request as kFailed, which is told in one more call.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void update(const RequestUpdate& update) = 0;
};

struct RunnerOptions {
  // Called on the runner's thread after the sinks had the updates of a pass, and only when there were any: what wakes
  // other threads, or writes to many connections, is done once here and not in every sink. Must not throw.
  std::function<void()> after_updates = {};
  // The flag that was given to the executor as `cancelled`: stop() sets it, so that a pass does not have to end first.
  // Null: stop() takes effect when the running pass has ended. Must outlive the runner.
  std::atomic<bool>* cancelled = nullptr;
};

// A thread that owns an engine. Requests and cancellations come in from any thread, through a mailbox that is emptied
// between passes; tokens and ends go out through a sink for each request. Nobody else touches the engine, and nobody
// reads a sequence while it is being changed: what can be known is in updates and snapshots.
//
// Where passes run in the background, updates are handed out while the next pass is running. Without anything to run
// the thread sleeps.
//
// All functions may be called by any thread, also from within a sink, except that wait() and the destructor must not be
// called on the runner's own thread.
class Runner {
 public:
  explicit Runner(Engine engine, RunnerOptions options = {});
  ~Runner();  // stop() and wait()
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Throws as Engine::submit does: kBadArgument for a request that cannot be run, kInterrupted after drain() or stop(),
  // kDevice when the engine is lost. Otherwise the sink gets exactly one end. What takes time is done by the caller's
  // thread. The sink is let go after the end, on the runner's thread.
  RequestId submit(Request request, std::shared_ptr<RequestSink> sink);

  // Three ways to end: one request, at once (kCancelled), unless it has ended already; all of them, each when it is
  // done, while new ones are refused; all of them, at once (kInterrupted). After the last two the thread ends as soon
  // as all requests have. None of them waits.
  void cancel(RequestId id);
  void drain();
  void stop();
  void wait();  // for the end of the thread, after drain() or stop(), or when the engine is lost

  // A paused request keeps its place in the executor and gets no rows: for readers that are slower than the model.
  void pause(RequestId id);
  void resume(RequestId id);

  // As of the end of the last pass; never waits for a pass, and no pass waits for it.
  RunnerSnapshot snapshot() const;

  // What never changes.
  const model::Model& model() const { return engine_.executor().model(); }
  const exec::ExecutorOptions& limits() const { return engine_.executor().options(); }
  std::string_view executor_name() const { return engine_.executor().name(); }
  const text::Vocab& vocab() const { return engine_.vocab(); }
  std::shared_ptr<const text::Vocab> shared_vocab() const { return engine_.shared_vocab(); }

 private:
  class Entry;  // a request on its way
  struct Submission {
    RequestId id;
    std::shared_ptr<Sequence> sequence;
    std::shared_ptr<RequestSink> sink;
  };
  struct Mail {
    std::vector<Submission> submissions;
    std::vector<RequestId> cancels;
    std::vector<std::pair<RequestId, bool>> pauses;
    bool is_empty() const { return submissions.empty() && cancels.empty() && pauses.empty(); }
    void clear() { submissions.clear(), cancels.clear(), pauses.clear(); }
  };

  void refuse_if_closed() const;  // with the mailbox locked
  void post(const std::function<void()>& write);
  void thread_main();
  void run_until_closed();
  bool take_mail(bool may_sleep);
  void open_mail();
  void admit(Submission submission);
  static void tell_end(RequestId id, RequestSink& sink, const RequestEnd& end) noexcept;
  void touch(Entry& entry);
  void deliver();
  void hand_over(Entry& entry);
  void note_pass();
  void note_loss();
  void publish(bool is_idle);
  void abandon(const Failure& failure);

  Engine engine_;
  RunnerOptions options_;

  mutable std::mutex mailbox_;
  std::condition_variable has_mail_;
  Mail mail_;
  RequestId last_id_ = 0;
  bool is_draining_ = false;
  bool is_stopping_ = false;
  std::optional<Failure> lost_;

  // The runner's thread alone.
  Mail taken_;
  bool must_end_all_ = false;
  bool has_stopped_ = false;
  RunnerState state_ = RunnerState::kRunning;
  std::unordered_map<RequestId, std::shared_ptr<Entry>> entries_;
  std::vector<Entry*> touched_;  // that have something to be told
  uint64_t noted_pass_ = 0;
  RecentRate prompt_rate_, generated_rate_;
  RunnerTotals totals_;

  mutable std::mutex shown_;
  RunnerSnapshot snapshot_;

  std::mutex joining_;
  std::thread thread_;
};

}  // namespace carat::engine
