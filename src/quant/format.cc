#include "quant/format.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr std::array<FormatInfo, 28> kFormats = {{
    {Format::kF32, "F32", 1, 4, dequantise_f32, quantise_f32},
    {Format::kF16, "F16", 1, 2, dequantise_f16, quantise_f16},
    {Format::kBF16, "BF16", 1, 2, dequantise_bf16, quantise_bf16},
    {Format::kQ8_0, "Q8_0", kBlock, sizeof(BlockQ8_0), dequantise_q8_0, quantise_q8_0},
    {Format::kQ4_0, "Q4_0", kBlock, sizeof(BlockQ4_0), dequantise_q4_0, quantise_q4_0},
    {Format::kQ4_1, "Q4_1", kBlock, sizeof(BlockQ4_1), dequantise_q4_1, quantise_q4_1},
    {Format::kQ5_0, "Q5_0", kBlock, sizeof(BlockQ5_0), dequantise_q5_0, quantise_q5_0},
    {Format::kQ5_1, "Q5_1", kBlock, sizeof(BlockQ5_1), dequantise_q5_1, quantise_q5_1},
    {Format::kQ2_K, "Q2_K", kSuperBlock, sizeof(BlockQ2_K), dequantise_q2_k, quantise_q2_k},
    {Format::kQ3_K, "Q3_K", kSuperBlock, sizeof(BlockQ3_K), dequantise_q3_k, quantise_q3_k},
    {Format::kQ4_K, "Q4_K", kSuperBlock, sizeof(BlockQ4_K), dequantise_q4_k, quantise_q4_k},
    {Format::kQ5_K, "Q5_K", kSuperBlock, sizeof(BlockQ5_K), dequantise_q5_k, quantise_q5_k},
    {Format::kQ6_K, "Q6_K", kSuperBlock, sizeof(BlockQ6_K), dequantise_q6_k, quantise_q6_k},
    {Format::kIQ4_NL, "IQ4_NL", kBlock, sizeof(BlockIQ4_NL), dequantise_iq4_nl, quantise_iq4_nl},
    {Format::kIQ4_XS, "IQ4_XS", kSuperBlock, sizeof(BlockIQ4_XS), dequantise_iq4_xs, quantise_iq4_xs},
    {Format::kIQ3_S, "IQ3_S", kSuperBlock, sizeof(BlockIQ3_S), dequantise_iq3_s, quantise_iq3_s},
    {Format::kIQ3_XXS, "IQ3_XXS", kSuperBlock, sizeof(BlockIQ3_XXS), dequantise_iq3_xxs, quantise_iq3_xxs},
    {Format::kIQ2_S, "IQ2_S", kSuperBlock, sizeof(BlockIQ2_S), dequantise_iq2_s, quantise_iq2_s},
    {Format::kIQ2_XS, "IQ2_XS", kSuperBlock, sizeof(BlockIQ2_XS), dequantise_iq2_xs, quantise_iq2_xs},
    {Format::kIQ2_XXS, "IQ2_XXS", kSuperBlock, sizeof(BlockIQ2_XXS), dequantise_iq2_xxs, quantise_iq2_xxs},
    {Format::kIQ1_M, "IQ1_M", kSuperBlock, sizeof(BlockIQ1_M), dequantise_iq1_m, nullptr},
    {Format::kIQ1_S, "IQ1_S", kSuperBlock, sizeof(BlockIQ1_S), dequantise_iq1_s, nullptr},
    {Format::kTQ2_0, "TQ2_0", kSuperBlock, sizeof(BlockTQ2_0), dequantise_tq2_0, nullptr},
    {Format::kTQ1_0, "TQ1_0", kSuperBlock, sizeof(BlockTQ1_0), dequantise_tq1_0, nullptr},
    {Format::kMXFP4, "MXFP4", kBlock, sizeof(BlockMXFP4), dequantise_mxfp4, quantise_mxfp4},
    {Format::kNVFP4, "NVFP4", 64, sizeof(BlockNVFP4), dequantise_nvfp4, quantise_nvfp4},
    {Format::kQ2_0, "Q2_0", 64, sizeof(BlockQ2_0), dequantise_q2_0, nullptr},
    {Format::kQ1_0, "Q1_0", 128, sizeof(BlockQ1_0), dequantise_q1_0, nullptr},
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
