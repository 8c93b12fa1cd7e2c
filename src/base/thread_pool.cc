#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace carat {

namespace {
constexpr int kSpins = 4000;  // about 50 to 100 microseconds

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

unsigned usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return static_cast<unsigned>(count);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(unsigned workers) : size_(workers == 0 ? usable_threads() : workers) {
  try {
    threads_.reserve(size_ - 1);
    for (unsigned worker = 1; worker < size_; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::exception& error) {
    stop();  // those that did start must be joined before they are destroyed
    fail(ErrorCode::kOutOfMemory, "cannot start {} threads (started {}: {}); a smaller number of threads (-t) helps",
         size_, threads_.size(), error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_guarded(const std::function<void(unsigned)>& body, unsigned worker) noexcept {
  try {
    body(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::run(const std::function<void(unsigned)>& body) {
  if (size_ > 1) {
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      running_.store(size_ - 1, std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
  }
  run_guarded(body, 0);
  if (size_ > 1) {
    for (int spin = 0; spin < kSpins && running_.load(std::memory_order_acquire) != 0; ++spin) relax();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return running_.load(std::memory_order_acquire) == 0; });
    body_ = nullptr;
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(unsigned worker) {
  size_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) relax();
    const std::function<void(unsigned)>* body = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      seen = generation_.load(std::memory_order_acquire);
      if (stopping_) return;
      body = body_;
    }
    run_guarded(*body, worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(mutex_);  // pairs with the wait in run(), so the wake-up cannot be lost
      done_.notify_one();
    }
  }
}

void ThreadPool::parallel_for(size_t count, size_t grain, const std::function<void(size_t, size_t, unsigned)>& body) {
  grain = std::max<size_t>(1, grain);
  if (count == 0) return;
  if (size_ == 1 || count <= grain) {
    body(0, count, 0);
    return;
  }
  std::atomic<size_t> next{0};
  run([&](unsigned worker) {
    for (;;) {
      const size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(count, begin + grain), worker);
    }
  });
}

}  // namespace carat
