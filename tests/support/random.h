#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace carat::test {

// Random numbers that are the same on every machine and standard library, so a failing test repeats. Copyable.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits();                             // 64 independent bits
  uint64_t below(uint64_t limit);              // uniform in [0, limit); limit > 0
  int64_t between(int64_t low, int64_t high);  // uniform in [low, high]
  double uniform();                            // in [0, 1)
  float uniform(float low, float high);
  float normal();  // mean 0, variance 1

  std::vector<float> normals(size_t count, float scale = 1.0f);
  std::vector<std::byte> bytes(size_t count);

 private:
  uint64_t state_;
};

}  // namespace carat::test
