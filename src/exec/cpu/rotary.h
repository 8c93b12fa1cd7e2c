#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/aligned_buffer.h"

namespace carat::exec::cpu {

// Cosines and sines of the rotary angles of a pass's rows for one kind of layer (docs/gemma4.md 3.4), computed once per
// pass.
class RotaryAngles {
 public:
  // divisors: [hd / 2], or empty for none.
  RotaryAngles(uint32_t hd, double base, std::span<const float> divisors, uint32_t max_rows);

  void set_row(uint32_t row, uint32_t position);
  // Row `to` takes the angles of row `from` when rows are dropped from a pass.
  void move_row(uint32_t from, uint32_t to);
  const float* cosines(uint32_t row) const { return cosines_.data() + row * half(); }
  const float* sines(uint32_t row) const { return sines_.data() + row * half(); }
  size_t half() const { return frequencies_.size(); }

 private:
  std::vector<double> frequencies_;  // [hd / 2], radians per position
  AlignedBuffer<float> cosines_;     // [rows, hd / 2]
  AlignedBuffer<float> sines_;
};

}  // namespace carat::exec::cpu
