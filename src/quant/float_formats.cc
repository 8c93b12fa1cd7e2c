// F32, F16 and BF16: blocks of one element. Reading is exact, writing rounds to nearest even; there is no choice of
// scale, so importance plays no part.

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian and read in place");

template <float (*kToFloat)(uint16_t)>
void widen(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, blocks + i * sizeof(bits), sizeof(bits));
    out[i] = kToFloat(bits);
  }
}

template <uint16_t (*kFromFloat)(float)>
void narrow(const float* values, std::byte* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = kFromFloat(values[i]);
    std::memcpy(blocks + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

void dequantise_f32(const std::byte* blocks, float* out, size_t count) {
  if (count != 0) std::memcpy(out, blocks, count * sizeof(float));
}

void dequantise_f16(const std::byte* blocks, float* out, size_t count) { widen<half_to_float>(blocks, out, count); }

void dequantise_bf16(const std::byte* blocks, float* out, size_t count) { widen<bfloat_to_float>(blocks, out, count); }

void quantise_f32(const float* values, std::byte* blocks, size_t count, const float*) {
  if (count != 0) std::memcpy(blocks, values, count * sizeof(float));
}

void quantise_f16(const float* values, std::byte* blocks, size_t count, const float*) {
  narrow<float_to_half>(values, blocks, count);
}

void quantise_bf16(const float* values, std::byte* blocks, size_t count, const float*) {
  narrow<float_to_bfloat>(values, blocks, count);
}

}  // namespace carat::quant
