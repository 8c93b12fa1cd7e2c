#include "server/service/work_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace carat::server {

WorkPool::WorkPool(unsigned threads, size_t most_waiting) : most_waiting_(most_waiting) {
  try {
    for (unsigned i = 0; i < std::max(1u, threads); ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorCode::kOutOfMemory, "cannot start a thread of the server: {}", error.what());
  }
}

WorkPool::~WorkPool() { stop(); }

bool WorkPool::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || jobs_.size() >= most_waiting_) return false;
    jobs_.push_back(std::move(job));
  }
  has_jobs_.notify_one();
  return true;
}

void WorkPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    jobs_.clear();
  }
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkPool::work() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      has_jobs_.wait(lock, [this] { return is_stopped_ || !jobs_.empty(); });
      if (is_stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      job();
    } catch (...) {
      // A job tells whoever waits for it what went wrong; what it could not even tell must not end the process.
    }
  }
}

}  // namespace carat::server
