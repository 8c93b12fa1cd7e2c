#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"

namespace carat::exec::cpu {

// Loops whose items lie in memory one after the other. Every worker has a share of consecutive items and goes through
// it in order, so that what it reads follows what it has read, and what is asked for ahead of time is what it reads
// next. Who is done takes the second half of what another has left. Allocates once; a run allocates nothing.
class Shares {
 public:
  explicit Shares(unsigned workers) : shares_(workers) {}

  // Calls body(item, worker) once for each item of [0, count). The pool must have as many workers as there are shares.
  template <typename Body>
  void run(ThreadPool& pool, uint32_t count, const Body& body) {
    if (shares_.size() == 1 || count <= 1) {
      for (uint32_t item = 0; item < count; ++item) body(item, 0u);
      return;
    }
    divide(count);
    const auto loop = [&](unsigned worker) {
      uint32_t item = 0;
      while (take(worker, item)) body(item, worker);
    };
    pool.run(std::cref(loop));
  }

 private:
  // Items [begin, end) that nobody has begun, as one number: whoever changes it sees both or fails.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
  };

  void divide(uint32_t count);
  // The worker's next item; false when nothing is left anywhere.
  bool take(unsigned worker, uint32_t& item);
  static bool take_first(Share& share, uint32_t& item);
  static bool take_half(Share& from, Share& to);

  std::vector<Share> shares_;
};

}  // namespace carat::exec::cpu
