#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace carat::server {

// A few threads for what must hold up neither sockets nor the engine: reading bodies, rendering, tokenising, compiling
// grammars. Work is done in the order it came, by whoever is free. Jobs must not throw. Thread-safe.
class WorkPool {
 public:
  // Throws kOutOfMemory when the system refuses a thread.
  WorkPool(unsigned threads, size_t most_waiting);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False: too much is waiting already, or the pool was stopped; the job is not taken.
  bool post(std::function<void()> job);
  // What is waiting is dropped, what is being done is waited for. The destructor does it too.
  void stop();

 private:
  void work();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable has_jobs_;
  std::deque<std::function<void()>> jobs_;
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace carat::server
