#pragma once

#include <cstddef>

namespace carat::test {

// Measures the heap of this program: how far above the start of the measurement it ever got. One at a time.
class AllocationMeter {
 public:
  AllocationMeter();
  size_t peak_bytes() const;

 private:
  size_t start_;
};

}  // namespace carat::test
