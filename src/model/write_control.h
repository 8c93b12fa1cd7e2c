#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/error.h"

namespace carat::model {

// How the caller follows and stops the writing of a large file.
struct WriteControl {
  std::function<void(uint64_t done)> progress;   // called on the calling thread with the bytes done so far
  const std::atomic<bool>* cancelled = nullptr;  // when set, writing ends with kInterrupted and leaves no file

  void check() const {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed))
      fail(ErrorCode::kInterrupted, "interrupted");
  }
};

}  // namespace carat::model
