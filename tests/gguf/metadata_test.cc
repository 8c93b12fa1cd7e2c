#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "gguf/reader.h"

namespace carat::gguf {
namespace {

using testing::HasSubstr;

template <typename Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    return error.what();
  }
  return "accepted";
}

Metadata example() {
  Metadata metadata;
  metadata.add("u", {ValueType::kU16, uint64_t{7}});
  metadata.add("i", {ValueType::kI32, int64_t{8}});
  metadata.add("negative", {ValueType::kI64, int64_t{-1}});
  metadata.add("f", {ValueType::kF32, 0.5});
  metadata.add("b", {ValueType::kBool, true});
  metadata.add("s", {ValueType::kString, std::string_view("text")});
  metadata.add("a", {ValueType::kArray, Array{}});
  return metadata;
}

TEST(Metadata, FindsWhatWasAddedInOrder) {
  const Metadata metadata = example();
  ASSERT_EQ(metadata.entries().size(), 7u);
  EXPECT_EQ(metadata.entries()[2].key, "negative");
  EXPECT_EQ(metadata.find("f")->type, ValueType::kF32);
  EXPECT_EQ(metadata.find("x"), nullptr);
}

TEST(Metadata, AbsentKeysAreNoErrors) {
  const Metadata metadata = example();
  EXPECT_EQ(metadata.unsigned_integer("x"), std::nullopt);
  EXPECT_EQ(metadata.number("x"), std::nullopt);
  EXPECT_EQ(metadata.boolean("x"), std::nullopt);
  EXPECT_EQ(metadata.string("x"), std::nullopt);
  EXPECT_EQ(metadata.array("x"), nullptr);
}

TEST(Metadata, IntegersOfAnySignConvertWhenTheyFit) {
  const Metadata metadata = example();
  EXPECT_EQ(metadata.unsigned_integer("u"), 7u);
  EXPECT_EQ(metadata.unsigned_integer("i"), 8u);
  EXPECT_EQ(metadata.number("u"), 7.0);
  EXPECT_EQ(metadata.number("negative"), -1.0);
  EXPECT_EQ(metadata.number("f"), 0.5);
  EXPECT_EQ(metadata.boolean("b"), true);
  EXPECT_EQ(metadata.string("s"), "text");
  EXPECT_NE(metadata.array("a"), nullptr);
  EXPECT_THAT(refusal([&] { metadata.unsigned_integer("negative"); }), HasSubstr("'negative' is -1"));
}

TEST(Metadata, WrongTypesNameTheKeyAndBothTypes) {
  const Metadata metadata = example();
  EXPECT_EQ(refusal([&] { metadata.unsigned_integer("f"); }),
            "key 'f' holds a value of type f32 where an unsigned integer is needed");
  EXPECT_EQ(refusal([&] { metadata.unsigned_integer("b"); }),
            "key 'b' holds a value of type bool where an unsigned integer is needed");
  EXPECT_EQ(refusal([&] { metadata.number("s"); }), "key 's' holds a value of type string where a number is needed");
  EXPECT_EQ(refusal([&] { metadata.boolean("u"); }), "key 'u' holds a value of type u16 where a bool is needed");
  EXPECT_EQ(refusal([&] { metadata.string("a"); }), "key 'a' holds a value of type array where a string is needed");
  EXPECT_EQ(refusal([&] { metadata.array("i"); }), "key 'i' holds a value of type i32 where an array is needed");
}

TEST(Metadata, RefusesDuplicates) {
  Metadata metadata = example();
  EXPECT_EQ(refusal([&] { metadata.add("f", {ValueType::kF32, 0.5}); }), "key 'f' appears twice");
}

template <typename T>
Array array_of(ValueType type, const std::vector<T>& values) {
  return {type, values.size(), std::as_bytes(std::span(values)), {}};
}

TEST(Array, ReadsEveryElementType) {
  const auto check = [](ValueType type, const auto& values) {
    const Array array = array_of(type, values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(array.number(i), static_cast<double>(values[i]));
      EXPECT_EQ(array.integer(i), static_cast<int64_t>(values[i]));
    }
  };
  check(ValueType::kU8, std::vector<uint8_t>{0, 255});
  check(ValueType::kI8, std::vector<int8_t>{-128, 127});
  check(ValueType::kU16, std::vector<uint16_t>{0, 65535});
  check(ValueType::kI16, std::vector<int16_t>{-32768, 32767});
  check(ValueType::kU32, std::vector<uint32_t>{0, 4294967295});
  check(ValueType::kI32, std::vector<int32_t>{-2147483647, 2147483647});
  check(ValueType::kU64, std::vector<uint64_t>{0, uint64_t{1} << 62});
  check(ValueType::kI64, std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 5});
  check(ValueType::kBool, std::vector<uint8_t>{0, 1});
}

TEST(Array, FloatsAreNumbersButNotIntegers) {
  const std::vector<float> floats = {0.25f, std::nanf("")};
  const Array array = array_of(ValueType::kF32, floats);
  EXPECT_EQ(array.number(0), 0.25);
  EXPECT_TRUE(std::isnan(array.number(1)));
  EXPECT_THAT(refusal([&] { array.integer(1); }), HasSubstr("array of f32"));
  const std::vector<double> doubles = {0.1};
  EXPECT_EQ(array_of(ValueType::kF64, doubles).number(0), 0.1);
}

TEST(Array, IntegersBeyondTheSignedRangeAreRefused) {
  const std::vector<uint64_t> values = {uint64_t{1} << 63};
  EXPECT_THAT(refusal([&] { array_of(ValueType::kU64, values).integer(0); }), HasSubstr("9223372036854775808"));
}

TEST(Array, MisuseIsALogicError) {
  const std::vector<uint8_t> values = {1};
  EXPECT_THROW(array_of(ValueType::kU8, values).number(1), std::logic_error);
  const Array strings{ValueType::kString, 1, {}, {"text"}};
  EXPECT_THROW(strings.number(0), std::logic_error);
}

}  // namespace
}  // namespace carat::gguf
