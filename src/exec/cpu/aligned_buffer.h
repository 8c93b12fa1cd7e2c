#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"

namespace carat::exec::cpu {

// A fixed array that begins on a cache line. Values start as zero. Move-only; empty when default-constructed.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size) {
    if (size == 0) return;
    void* memory = ::operator new[](size * sizeof(T), std::align_val_t{kAlignment}, std::nothrow);
    if (memory == nullptr) {
      fail(ErrorCode::kOutOfMemory,
           "no {} MiB of memory for the CPU executor; a smaller context, fewer sequences or a smaller batch need less",
           size * sizeof(T) >> 20);
    }
    values_.reset(static_cast<T*>(memory));
    std::uninitialized_value_construct_n(values_.get(), size);
  }

  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(T* values) const { ::operator delete[](values, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T[], Free> values_;
  size_t size_ = 0;
};

}  // namespace carat::exec::cpu
