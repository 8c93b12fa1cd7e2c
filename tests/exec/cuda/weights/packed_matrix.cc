#include "exec/cuda/weights/packed_matrix.h"

#include <cstring>

#include "base/float16.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/weights/repack.h"
#include "quant/blocks.h"

namespace carat::cuda {

namespace {

using quant::Format;

void put_half(std::byte* at, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

float signed_scale(test::Random& random, float size) {
  return random.uniform(0.5f, 1.5f) * size * (random.below(2) == 0 ? 1.0f : -1.0f);
}

// Overwrites the scales of one block of random bytes.
void set_scales(Format format, std::byte* block, test::Random& random) {
  switch (format) {
    case Format::kF32: {
      const float value = random.uniform(-1.7f, 1.7f);
      std::memcpy(block, &value, sizeof value);
      return;
    }
    case Format::kF16:
      return put_half(block, random.uniform(-1.7f, 1.7f));
    case Format::kBF16: {
      const uint16_t bits = float_to_bfloat(random.uniform(-1.7f, 1.7f));
      std::memcpy(block, &bits, sizeof bits);
      return;
    }
    case Format::kQ8_0:
    case Format::kIQ4_NL:
      return put_half(block, signed_scale(random, 0.015f));
    case Format::kQ4_0:
      return put_half(block, signed_scale(random, 0.2f));
    case Format::kQ5_0:
      return put_half(block, signed_scale(random, 0.1f));
    case Format::kQ4_1:
    case Format::kQ5_1:
      put_half(block, signed_scale(random, 0.1f));
      return put_half(block + 2, signed_scale(random, 1.0f));
    case Format::kMXFP4:
      block[0] = static_cast<std::byte>(125 + random.below(4));
      return;
    case Format::kQ2_K:
      put_half(block + offsetof(quant::BlockQ2_K, d), signed_scale(random, 0.1f));
      return put_half(block + offsetof(quant::BlockQ2_K, dmin), signed_scale(random, 0.1f));
    case Format::kQ3_K:
      return put_half(block + offsetof(quant::BlockQ3_K, d), signed_scale(random, 0.02f));
    case Format::kQ4_K:
    case Format::kQ5_K:
      put_half(block, signed_scale(random, 0.005f));
      return put_half(block + 2, signed_scale(random, 0.02f));
    case Format::kQ6_K:
      return put_half(block + offsetof(quant::BlockQ6_K, d), signed_scale(random, 0.001f));
    case Format::kIQ4_XS:
      return put_half(block, signed_scale(random, 0.001f));
    case Format::kIQ3_S:
      return put_half(block, signed_scale(random, 0.01f));
    case Format::kIQ3_XXS:
    case Format::kIQ2_S:
    case Format::kIQ2_XS:
    case Format::kIQ2_XXS:
      return put_half(block, signed_scale(random, 0.02f));
    case Format::kIQ1_S:
      return put_half(block, signed_scale(random, 0.1f));
    case Format::kIQ1_M: {
      std::byte half[2];
      put_half(half, signed_scale(random, 0.1f));
      for (int k = 0; k < 4; ++k) {
        const std::byte quarter = k % 2 == 0 ? half[k / 2] << 4 : half[k / 2] & std::byte{0xf0};
        block[49 + 2 * k] = (block[49 + 2 * k] & std::byte{15}) | quarter;
      }
      return;
    }
    case Format::kTQ1_0:
      return put_half(block + offsetof(quant::BlockTQ1_0, d), signed_scale(random, 1.0f));
    case Format::kTQ2_0:
      return put_half(block + offsetof(quant::BlockTQ2_0, d), signed_scale(random, 1.0f));
    case Format::kQ1_0:
    case Format::kQ2_0:
      return put_half(block, signed_scale(random, 1.0f));
    case Format::kNVFP4:
      for (int k = 0; k < 4; ++k) block[k] = static_cast<std::byte>(40 + random.below(16));
      return;
  }
}

}  // namespace

std::vector<std::byte> random_rows(const quant::FormatInfo& format, size_t rows, size_t cols, test::Random& random) {
  std::vector<std::byte> bytes = random.bytes(rows * format.row_bytes(cols));
  for (size_t at = 0; at < bytes.size(); at += format.bytes) set_scales(format.format, bytes.data() + at, random);
  return bytes;
}

std::vector<float> packed_values(const quant::FormatInfo& format, const std::vector<std::byte>& raw, size_t rows,
                                 size_t cols) {
  std::vector<float> values(rows * cols);
  format.dequantise(raw.data(), values.data(), values.size());
  if (packing_of(format.format) == Packing::kF16) {
    for (float& value : values) value = half_to_float(float_to_half(value));
  }
  return values;
}

PackedMatrix::PackedMatrix(Format format, uint32_t rows, uint32_t cols, uint64_t seed) {
  test::Random random(seed);
  const quant::FormatInfo& info = quant::info(format);
  build(info, random_rows(info, rows, cols, random), rows, cols, {0});
}

PackedMatrix::PackedMatrix(const quant::FormatInfo& format, const std::vector<std::byte>& raw, uint32_t rows,
                           uint32_t cols, const std::vector<uint32_t>& pieces) {
  build(format, raw, rows, cols, pieces);
}

void PackedMatrix::build(const quant::FormatInfo& format, const std::vector<std::byte>& raw, uint32_t rows,
                         uint32_t cols, const std::vector<uint32_t>& pieces) {
  values_ = packed_values(format, raw, rows, cols);
  view_ = {.packing = packing_of(format.format), .rows = rows, .cols = cols, .steps = steps_of(cols)};
  memory_ = DeviceMemory(packed_matrix_bytes(view_.packing, rows, cols), "test matrix");
  // A byte the repacking leaves out must not look like a zero.
  check(cudaMemset(memory_.data(), 0xff, memory_.bytes()), "cudaMemset");
  const PackedBytes bytes = packed_bytes(view_.packing);
  const uint64_t cells = uint64_t{rows} * view_.steps;
  uint64_t used = 0;
  const auto plane = [&](uint64_t step_bytes) -> const void* {
    if (step_bytes == 0) return nullptr;
    const void* at = memory_.as<char>() + used;
    used += (cells * step_bytes + 255) / 256 * 256;
    return at;
  };
  view_.quants = plane(bytes.quants);
  view_.high = plane(bytes.high);
  view_.scales = plane(bytes.scales);
  view_.super = plane(bytes.super);

  const uint64_t row_bytes = format.row_bytes(cols);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const uint32_t first = pieces[p], end = p + 1 < pieces.size() ? pieces[p + 1] : rows;
    const DeviceMemory piece((end - first) * row_bytes, "test blocks");
    check(cudaMemcpy(piece.data(), raw.data() + first * row_bytes, piece.bytes(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    repack(format.format, piece.data(), end - first, view_, first, nullptr);
    check(cudaDeviceSynchronize(), "repack");
  }
}

std::vector<quant::FormatInfo> one_format_per_packing() {
  std::vector<quant::FormatInfo> formats;
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K, Format::kF16,
                              Format::kBF16, Format::kF32}) {
    formats.push_back(quant::info(format));
  }
  return formats;
}

}  // namespace carat::cuda
