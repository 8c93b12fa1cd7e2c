#include "support/random.h"

#include <cmath>
#include <numbers>

namespace carat::test {

// SplitMix64: a counter passed through a mixing function.
uint64_t Random::bits() {
  uint64_t mixed = (state_ += 0x9e3779b97f4a7c15u);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

// The bias of the remainder is below limit / 2^64: no test can see it.
uint64_t Random::below(uint64_t limit) { return bits() % limit; }

int64_t Random::between(int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t step = width == 0 ? bits() : below(width);  // 0: the whole range of int64_t
  return static_cast<int64_t>(static_cast<uint64_t>(low) + step);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

float Random::uniform(float low, float high) {
  return static_cast<float>(low + (static_cast<double>(high) - low) * uniform());
}

float Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform()));
}

std::vector<float> Random::normals(size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) value = scale * normal();
  return values;
}

std::vector<std::byte> Random::bytes(size_t count) {
  std::vector<std::byte> values(count);
  for (std::byte& value : values) value = static_cast<std::byte>(bits() & 0xffu);
  return values;
}

}  // namespace carat::test
