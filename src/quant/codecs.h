#pragma once

// What the format table points at. Private to quant/: everyone else goes through format.h.

#include <cstddef>

#include "quant/blocks.h"

namespace carat::quant {

// Calls decode(block, out) for each block of kElements, with `out` at the block's first element.
template <typename Block, int kElements, typename Decode>
void decode_blocks(const std::byte* blocks, float* out, size_t count, Decode decode) {
  for (size_t i = 0; i < count / kElements; ++i) {
    decode(load_block<Block>(blocks + i * sizeof(Block)), out + i * kElements);
  }
}

void dequantise_f32(const std::byte* blocks, float* out, size_t count);
void dequantise_f16(const std::byte* blocks, float* out, size_t count);
void dequantise_bf16(const std::byte* blocks, float* out, size_t count);
void dequantise_q8_0(const std::byte* blocks, float* out, size_t count);
void dequantise_q4_0(const std::byte* blocks, float* out, size_t count);
void dequantise_q4_1(const std::byte* blocks, float* out, size_t count);
void dequantise_q5_0(const std::byte* blocks, float* out, size_t count);
void dequantise_q5_1(const std::byte* blocks, float* out, size_t count);
void dequantise_iq4_nl(const std::byte* blocks, float* out, size_t count);
void dequantise_mxfp4(const std::byte* blocks, float* out, size_t count);
void dequantise_q2_k(const std::byte* blocks, float* out, size_t count);
void dequantise_q3_k(const std::byte* blocks, float* out, size_t count);
void dequantise_q4_k(const std::byte* blocks, float* out, size_t count);
void dequantise_q5_k(const std::byte* blocks, float* out, size_t count);
void dequantise_q6_k(const std::byte* blocks, float* out, size_t count);
void dequantise_nvfp4(const std::byte* blocks, float* out, size_t count);
void dequantise_q1_0(const std::byte* blocks, float* out, size_t count);
void dequantise_q2_0(const std::byte* blocks, float* out, size_t count);
void dequantise_tq1_0(const std::byte* blocks, float* out, size_t count);
void dequantise_tq2_0(const std::byte* blocks, float* out, size_t count);
void dequantise_iq4_xs(const std::byte* blocks, float* out, size_t count);
void dequantise_iq3_s(const std::byte* blocks, float* out, size_t count);
void dequantise_iq3_xxs(const std::byte* blocks, float* out, size_t count);
void dequantise_iq2_s(const std::byte* blocks, float* out, size_t count);
void dequantise_iq2_xs(const std::byte* blocks, float* out, size_t count);
void dequantise_iq2_xxs(const std::byte* blocks, float* out, size_t count);
void dequantise_iq1_s(const std::byte* blocks, float* out, size_t count);
void dequantise_iq1_m(const std::byte* blocks, float* out, size_t count);

void quantise_f32(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_f16(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_bf16(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q8_0(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q4_0(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q4_1(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q5_0(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q5_1(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q4_k(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q5_k(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q6_k(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q2_k(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_q3_k(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq4_nl(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq4_xs(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_mxfp4(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_nvfp4(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq2_xxs(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq2_xs(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq2_s(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq3_xxs(const float* values, std::byte* blocks, size_t count, const float* importance);
void quantise_iq3_s(const float* values, std::byte* blocks, size_t count, const float* importance);

}  // namespace carat::quant
