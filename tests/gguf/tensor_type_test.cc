#include "gguf/tensor_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/reader.h"
#include "support/gguf_sketch.h"

namespace carat::gguf {
namespace {

// Bits per weight as documented for each format: a second, independent way to state the table.
const std::map<std::string, double> kBitsPerWeight = {
    {"F32", 32},         {"F16", 16},        {"BF16", 16},        {"F64", 64},       {"I8", 8},
    {"I16", 16},         {"I32", 32},        {"I64", 64},         {"Q4_0", 4.5},     {"Q4_1", 5},
    {"Q5_0", 5.5},       {"Q5_1", 6},        {"Q8_0", 8.5},       {"Q8_1", 9},       {"Q2_K", 2.625},
    {"Q3_K", 3.4375},    {"Q4_K", 4.5},      {"Q5_K", 5.5},       {"Q6_K", 6.5625},  {"Q8_K", 9.125},
    {"IQ2_XXS", 2.0625}, {"IQ2_XS", 2.3125}, {"IQ3_XXS", 3.0625}, {"IQ1_S", 1.5625}, {"IQ4_NL", 4.5},
    {"IQ3_S", 3.4375},   {"IQ2_S", 2.5625},  {"IQ4_XS", 4.25},    {"IQ1_M", 1.75},   {"TQ1_0", 1.6875},
    {"TQ2_0", 2.0625},   {"MXFP4", 4.25},    {"NVFP4", 4.5},      {"Q1_0", 1.125},   {"Q2_0", 2.25}};

TEST(TensorType, EveryTypeHasItsDocumentedSize) {
  size_t known = 0;
  for (uint32_t id = 0; id < 1000; ++id) {
    const TensorTypeInfo* type = find_tensor_type(id);
    if (type == nullptr) continue;
    ++known;
    EXPECT_EQ(type->id, id);
    const auto bits = kBitsPerWeight.find(std::string(type->name));
    ASSERT_NE(bits, kBitsPerWeight.end()) << type->name;
    EXPECT_EQ(8.0 * type->bytes / type->block, bits->second) << type->name;
  }
  EXPECT_EQ(known, kBitsPerWeight.size());
}

TEST(TensorType, IdsOfTheCommonTypes) {
  EXPECT_EQ(find_tensor_type(0)->name, "F32");
  EXPECT_EQ(find_tensor_type(2)->name, "Q4_0");
  EXPECT_EQ(find_tensor_type(8)->name, "Q8_0");
  EXPECT_EQ(find_tensor_type(12)->name, "Q4_K");
  EXPECT_EQ(find_tensor_type(14)->name, "Q6_K");
  EXPECT_EQ(find_tensor_type(20)->name, "IQ4_NL");
  EXPECT_EQ(find_tensor_type(30)->name, "BF16");
  EXPECT_EQ(find_tensor_type(39)->name, "MXFP4");
}

TEST(TensorType, RetiredAndFutureIdsAreUnknown) {
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 0xffffffffu}) {
    EXPECT_EQ(find_tensor_type(id), nullptr) << id;
  }
}

TEST(TensorBytes, CountsWholeBlocks) {
  const TensorTypeInfo& q8 = *find_tensor_type(8);
  EXPECT_EQ(tensor_bytes(q8, std::array<uint64_t, 1>{32}), 34u);
  EXPECT_EQ(tensor_bytes(q8, std::array<uint64_t, 4>{64, 3, 5, 7}), 68u * 3 * 5 * 7);
  EXPECT_EQ(tensor_bytes(*find_tensor_type(0), std::array<uint64_t, 2>{1, 1}), 4u);
}

TEST(TensorBytes, RefusesImpossibleShapes) {
  const auto refusal = [](uint32_t type, const std::vector<uint64_t>& ne) -> std::string {
    try {
      tensor_bytes(*find_tensor_type(type), ne);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal(0, {}), HasSubstr("0 dimensions"));
  EXPECT_THAT(refusal(0, {1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
  EXPECT_THAT(refusal(0, {3, 0}), HasSubstr("empty dimension"));
  EXPECT_THAT(refusal(8, {48}), HasSubstr("no multiple of the 32"));
  EXPECT_THAT(refusal(24, {uint64_t{1} << 63}), HasSubstr("more elements"));
  EXPECT_THAT(refusal(27, {uint64_t{1} << 62}), HasSubstr("more bytes"));
  EXPECT_EQ(refusal(24, {(uint64_t{1} << 63) - 1}), "accepted");
}

// A file of each type: opens when it is whole, and is refused with the tensor's name when a block is cut off or a row
// is no multiple of the block.
TEST(TensorType, OpensWholeAndIsRefusedWithBrokenBlocks) {
  const auto refusal = [](const test::GgufSketch& file) {
    const test::Bytes bytes = file.encode();
    try {
      parse(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      return std::string(error.what());
    }
    return std::string();
  };
  for (uint32_t id = 0; id <= 60; ++id) {
    const TensorTypeInfo* type = find_tensor_type(id);
    if (type == nullptr) continue;
    SCOPED_TRACE(type->name);
    test::GgufSketch file;
    file.tensors.push_back({.name = "some.weight", .ne = {uint64_t{3} * type->block, 5}, .type = id});
    file.data_bytes = uint64_t{15} * type->bytes;
    EXPECT_EQ(refusal(file), "");
    test::GgufSketch cut = file;
    cut.data_bytes -= 1;
    EXPECT_THAT(refusal(cut), testing::HasSubstr("some.weight"));
    if (type->block == 1) continue;
    for (const uint64_t width : {uint64_t{1}, uint64_t{type->block} - 1, uint64_t{type->block} + 1}) {
      test::GgufSketch ragged = file;
      ragged.tensors[0].ne[0] = width;
      EXPECT_THAT(refusal(ragged), testing::AllOf(testing::HasSubstr("some.weight"), testing::HasSubstr("multiple")));
    }
  }
}

}  // namespace
}  // namespace carat::gguf
