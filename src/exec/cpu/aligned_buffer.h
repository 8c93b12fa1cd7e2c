#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "base/error.h"

namespace carat::exec::cpu {

// A fixed array of zeros that begins on a cache line. Pages nobody touches take no memory. Move-only.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivial_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size) {
    if (size == 0) return;
    memory_.reset(std::calloc(size * sizeof(T) + kAlignment, 1));
    if (memory_ == nullptr) {
      fail(ErrorCode::kOutOfMemory,
           "no {} MiB of memory for the CPU executor; a smaller context (-c), batch (-ub) or fewer sequences need less",
           size * sizeof(T) >> 20);
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;  // stays valid when the buffer is moved
  size_t size_ = 0;
};

}  // namespace carat::exec::cpu
