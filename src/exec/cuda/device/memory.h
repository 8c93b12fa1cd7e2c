#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace carat::cuda {

// Owned device memory, uninitialised. Move-only. Allocation failure names what it was for, the bytes needed and free.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(size_t bytes, const char* purpose);
  ~DeviceMemory() { release(); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    if (this != &other) {
      release();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void release() noexcept;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A typed array on the device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(size_t count, const char* purpose) : memory_(count * sizeof(T), purpose), count_(count) {}
  T* data() const { return memory_.as<T>(); }
  size_t size() const { return count_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
  size_t count_ = 0;
};

// Page-locked host memory that the GPU can read directly (device_data) and copy from at full speed. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(size_t bytes, const char* purpose);
  ~PinnedMemory() { release(); }
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    if (this != &other) {
      release();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }

  void* data() const { return data_; }
  void* device_data() const;
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void release() noexcept;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace carat::cuda
