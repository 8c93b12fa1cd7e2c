#pragma once

namespace carat::test {

// While it lives, the allocations of all threads are counted (those made with operator new), and those from number
// `first` to number `last` fail. One at a time.
class FailingMemory {
 public:
  explicit FailingMemory(long first = -1, long last = -1);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  static long stop();  // how many there were
  // Those of the calling thread do not count: what a test keeps for itself.
  static void exempt_this_thread(bool is_exempt);
};

}  // namespace carat::test
