// The operators stand in a file of their own: where a compiler sees into them, it warns of free() in place of delete.
#include "capi/failing_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counts{false};
std::atomic<long> allocations{0}, first_failing{-1}, last_failing{-1};

thread_local bool is_exempt = false;

bool must_fail() {
  if (is_exempt || !counts.load(std::memory_order_relaxed)) return false;
  const long number = allocations.fetch_add(1);
  return number >= first_failing && number <= last_failing;
}

}  // namespace

void* operator new(size_t bytes) {
  if (must_fail()) throw std::bad_alloc();
  if (void* memory = std::malloc(std::max<size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return must_fail() ? nullptr : std::malloc(std::max<size_t>(bytes, 1));
}
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace carat::test {

FailingMemory::FailingMemory(long first, long last) {
  first_failing = first;
  last_failing = std::max(first, last);
  allocations = 0;
  counts = true;
}

FailingMemory::~FailingMemory() { stop(); }

long FailingMemory::stop() {
  counts = false;
  return allocations;
}

void FailingMemory::exempt_this_thread(bool is) { is_exempt = is; }

}  // namespace carat::test
