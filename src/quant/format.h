#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace carat::quant {

// The weight formats carat computes with. Values are the ids GGUF files use.
enum class Format : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

// Layouts and formulas: docs/gemma4.md 8.2. `count` is a multiple of the block in all functions here; blocks are stored
// back to back and need no alignment.
using Dequantise = void (*)(const std::byte* blocks, float* out, size_t count);
// Searches for the block of the least squared error. `importance` (as long as `values`) weighs the error of each
// element; nullptr weighs all alike. The result depends on nothing but the input. The float formats round as
// IEEE does (F16 has no finite value beyond 65504); the others store NaN as 0 and clamp to what a half-precision scale
// can reach, so callers that must not lose such values check for them first.
using Quantise = void (*)(const float* values, std::byte* blocks, size_t count, const float* importance);

// One row of the format table. Thread-safe: everything here is a pure function.
struct FormatInfo {
  Format format;
  std::string_view name;  // as in file names and flags: "Q4_K"
  uint32_t block;         // elements per block
  uint32_t bytes;         // bytes per block
  Dequantise dequantise;
  Quantise quantise;  // nullptr when carat only reads the format

  double bits_per_weight() const { return 8.0 * bytes / block; }
  uint64_t row_bytes(uint64_t elements) const { return elements / block * bytes; }
};

std::span<const FormatInfo> formats();
const FormatInfo& info(Format format);
const FormatInfo* find_format(uint32_t gguf_id);       // nullptr: carat cannot compute with this type
const FormatInfo* find_format(std::string_view name);  // case-insensitive; nullptr when unknown

}  // namespace carat::quant
