#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>

#include "base/thread_pool.h"

namespace carat::exec::cpu {

// Calls body(item, worker) for each item of [0, count), handed out `grain` at a time as workers become free. Unlike
// ThreadPool::parallel_for it allocates nothing: the loop is passed by reference.
template <typename Body>
void for_each(ThreadPool& pool, size_t count, size_t grain, const Body& body) {
  if (pool.size() == 1 || count <= grain) {
    for (size_t item = 0; item < count; ++item) body(item, 0u);
    return;
  }
  std::atomic<size_t> next{0};
  const auto loop = [&](unsigned worker) {
    for (;;) {
      const size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      const size_t end = std::min(count, begin + grain);
      for (size_t item = begin; item < end; ++item) body(item, worker);
    }
  };
  pool.run(std::cref(loop));
}

}  // namespace carat::exec::cpu
