#include "gguf/tensor_type.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/limits.h"

namespace carat::gguf {

namespace {

// Ids that are missing here were given up by the format's authors and occur in no valid file.
constexpr TensorTypeInfo kTypes[] = {
    // clang-format off
    {0, "F32", 1, 4},        {1, "F16", 1, 2},        {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},     {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},     {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},   {11, "Q3_K", 256, 110},  {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},  {15, "Q8_K", 256, 292},  {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18},  {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},
    {26, "I32", 1, 4},       {27, "I64", 1, 8},       {28, "F64", 1, 8},       {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},      {34, "TQ1_0", 256, 54},  {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},   {41, "Q1_0", 128, 18},   {42, "Q2_0", 64, 18},
    // clang-format on
};

}  // namespace

const TensorTypeInfo* find_tensor_type(uint32_t id) {
  for (const TensorTypeInfo& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

uint64_t tensor_bytes(const TensorTypeInfo& type, std::span<const uint64_t> ne) {
  if (ne.empty() || ne.size() > limits::kMaxDimensions) {
    fail(ErrorCode::kBadFile, "{} dimensions, but a tensor has 1 to {}", ne.size(), limits::kMaxDimensions);
  }
  std::optional<uint64_t> elements = 1;
  for (const uint64_t dimension : ne) {
    if (dimension == 0) fail(ErrorCode::kBadFile, "the shape [{}] has an empty dimension", fmt::join(ne, ", "));
    if (elements) elements = checked_mul(*elements, dimension);
  }
  // Other programs that read these files count in signed integers, and so may we.
  if (!elements || !std::in_range<int64_t>(*elements)) {
    fail(ErrorCode::kBadFile, "the shape [{}] has more elements than can be counted", fmt::join(ne, ", "));
  }
  if (ne[0] % type.block != 0) {
    fail(ErrorCode::kBadFile, "rows of {} elements are no multiple of the {} that {} packs together", ne[0], type.block,
         type.name);
  }
  const std::optional<uint64_t> bytes = checked_mul<uint64_t>(*elements / type.block, type.bytes);
  if (!bytes) fail(ErrorCode::kBadFile, "the shape [{}] has more bytes than can be counted", fmt::join(ne, ", "));
  return *bytes;
}

}  // namespace carat::gguf
