#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace carat {

// A fixed set of workers that run one parallel loop at a time. The calling thread is worker 0, so a pool of one has no
// threads at all. Not re-entrant: a loop body must not start another loop on the same pool. One caller at a time.
class ThreadPool {
 public:
  // 0 means one worker per hardware thread this process may use. Throws kOutOfMemory when the system refuses a thread.
  explicit ThreadPool(unsigned workers = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned size() const { return size_; }

  // Calls body(worker) once on each worker and returns when all are done. The first exception is rethrown here.
  void run(const std::function<void(unsigned worker)>& body);

  // Splits [0, count) into pieces of at most `grain`, handed out as workers become free: body(begin, end, worker).
  void parallel_for(size_t count, size_t grain,
                    const std::function<void(size_t begin, size_t end, unsigned worker)>& body);

 private:
  void stop() noexcept;
  void work(unsigned worker);
  void run_guarded(const std::function<void(unsigned)>& body, unsigned worker) noexcept;

  unsigned size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(unsigned)>* body_ = nullptr;
  // A generation number starts a loop; workers spin on it briefly before they sleep, because a decode step starts
  // hundreds of short loops and a futex round trip costs more than most of them.
  std::atomic<size_t> generation_{0};
  std::atomic<unsigned> running_{0};
  std::atomic<bool> stopping_{false};
  std::exception_ptr failure_;
};

// Hardware threads this process may run on (respects affinity and cgroup cpusets).
unsigned usable_threads();

}  // namespace carat
