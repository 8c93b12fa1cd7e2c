#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/format.h"

namespace carat::model {

// Random weights made directly as blocks of a format, many times faster than quantising random floats: random quants
// under scales that give the dequantised values the wanted mean square. The sequence of blocks is a pure function of
// the key and the block's number, so any part can be made by any thread and the result never depends on how the work
// was split. No library function is called per element: the same bytes on every machine.
class RandomBlocks {
 public:
  // A mean other than 0 is possible in float formats only. Standard deviation > 0, or >= 0 for float formats.
  RandomBlocks(quant::Format format, float mean, float deviation, uint64_t key);

  // Blocks [first, first + count) of the sequence; out holds count times the format's block bytes.
  void fill(uint64_t first, uint64_t count, std::byte* out) const;

  // The scales a block may have, with and without sign: block scales of real files vary by about this much.
  static constexpr unsigned kScales = 128;

 private:
  void prepare_scales(double mean_square_of_quants, double min_per_scale);
  void prepare_exponents();
  void prepare_nvfp4_scales();
  void fill_super_blocks(uint64_t first, uint64_t count, std::byte* out) const;
  void fill_codebook_blocks(uint64_t first, uint64_t count, std::byte* out) const;
  void fill_ternary_blocks(uint64_t first, uint64_t count, std::byte* out) const;

  quant::Format format_;
  float mean_;
  float deviation_;
  uint64_t key_;
  std::array<uint16_t, kScales> scales_{};  // halves
  std::array<uint16_t, kScales> mins_{};    // halves: the second value of formats that have one
  uint8_t exponent_ = 0;                    // MXFP4, NVFP4: the smaller of the two exponents (scales) used
  uint8_t larger_share_ = 0;                // of 256, how many blocks get exponent_ + 1
};

// A key for the tensor of this name in the model of this seed.
uint64_t random_key(uint64_t seed, std::string_view name);

}  // namespace carat::model
