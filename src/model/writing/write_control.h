#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/error.h"

namespace carat::model {

// How the caller follows and stops the writing of a large file.
struct WriteControl {
  // Called on the calling thread now and then with the bytes done so far, and once when all are done.
  std::function<void(uint64_t done)> progress;
  const std::atomic<bool>* cancelled = nullptr;  // when set, writing ends with kInterrupted and leaves no file

  void check() const {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed))
      fail(ErrorCode::kInterrupted, "interrupted");
  }
};

}  // namespace carat::model
