// Replaces the global allocation functions of the test program by ones that count.
#include "gguf/allocation_meter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> live_bytes{0};
std::atomic<size_t> most_bytes{0};

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = live_bytes.fetch_add(::malloc_usable_size(memory)) + ::malloc_usable_size(memory);
  size_t most = most_bytes.load();
  while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  live_bytes.fetch_sub(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new[](size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }

namespace carat::test {

AllocationMeter::AllocationMeter() : start_(live_bytes.load()) { most_bytes.store(start_); }

size_t AllocationMeter::peak_bytes() const { return most_bytes.load() - start_; }

}  // namespace carat::test
