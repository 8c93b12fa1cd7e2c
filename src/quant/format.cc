#include "quant/format.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr std::array<FormatInfo, 15> kFormats = {{
    {Format::kF32, "F32", 1, 4, dequantise_f32, quantise_f32},
    {Format::kF16, "F16", 1, 2, dequantise_f16, quantise_f16},
    {Format::kBF16, "BF16", 1, 2, dequantise_bf16, quantise_bf16},
    {Format::kQ8_0, "Q8_0", kBlock, sizeof(BlockQ8_0), dequantise_q8_0, quantise_q8_0},
    {Format::kQ4_0, "Q4_0", kBlock, sizeof(BlockQ4_0), dequantise_q4_0, quantise_q4_0},
    {Format::kQ4_1, "Q4_1", kBlock, sizeof(BlockQ4_1), dequantise_q4_1, quantise_q4_1},
    {Format::kQ5_0, "Q5_0", kBlock, sizeof(BlockQ5_0), dequantise_q5_0, quantise_q5_0},
    {Format::kQ5_1, "Q5_1", kBlock, sizeof(BlockQ5_1), dequantise_q5_1, quantise_q5_1},
    {Format::kQ2_K, "Q2_K", kSuperBlock, sizeof(BlockQ2_K), dequantise_q2_k, nullptr},
    {Format::kQ3_K, "Q3_K", kSuperBlock, sizeof(BlockQ3_K), dequantise_q3_k, nullptr},
    {Format::kQ4_K, "Q4_K", kSuperBlock, sizeof(BlockQ4_K), dequantise_q4_k, quantise_q4_k},
    {Format::kQ5_K, "Q5_K", kSuperBlock, sizeof(BlockQ5_K), dequantise_q5_k, quantise_q5_k},
    {Format::kQ6_K, "Q6_K", kSuperBlock, sizeof(BlockQ6_K), dequantise_q6_k, quantise_q6_k},
    {Format::kIQ4_NL, "IQ4_NL", kBlock, sizeof(BlockIQ4_NL), dequantise_iq4_nl, nullptr},
    {Format::kMXFP4, "MXFP4", kBlock, sizeof(BlockMXFP4), dequantise_mxfp4, nullptr},
}};

// Names are ASCII; std::tolower would ask the locale.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::span<const FormatInfo> formats() { return kFormats; }

const FormatInfo* find_format(uint32_t gguf_id) {
  for (const FormatInfo& row : kFormats) {
    if (static_cast<uint32_t>(row.format) == gguf_id) return &row;
  }
  return nullptr;
}

const FormatInfo* find_format(std::string_view name) {
  for (const FormatInfo& row : kFormats) {
    if (equal_ignoring_case(row.name, name)) return &row;
  }
  return nullptr;
}

const FormatInfo& info(Format format) {
  const FormatInfo* row = find_format(static_cast<uint32_t>(format));
  CARAT_CHECK(row != nullptr);
  return *row;
}

}  // namespace carat::quant
