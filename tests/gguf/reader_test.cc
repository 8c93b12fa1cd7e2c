#include "gguf/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "support/gguf_sketch.h"

namespace carat::gguf {
namespace {

using test::Bytes;
using test::GgufSketch;
using testing::ElementsAre;

TEST(Reader, ReadsEveryValueType) {
  const Bytes bytes = test::tiny_gguf().encode();
  const Header header = parse(bytes);
  EXPECT_EQ(header.version, 3u);
  EXPECT_EQ(header.alignment, 32u);
  const Metadata& metadata = header.metadata;
  ASSERT_EQ(metadata.entries().size(), 17u);
  EXPECT_EQ(metadata.string("general.architecture"), "tiny");
  EXPECT_EQ(metadata.unsigned_integer("a.u8"), 255u);
  EXPECT_EQ(metadata.number("a.i8"), -128.0);
  EXPECT_EQ(metadata.unsigned_integer("a.u16"), 65535u);
  EXPECT_EQ(metadata.number("a.i16"), -32768.0);
  EXPECT_EQ(metadata.unsigned_integer("a.u32"), 4294967295u);
  EXPECT_EQ(metadata.number("a.i32"), -2147483647.0);
  EXPECT_EQ(metadata.number("a.f32"), 1.5);
  EXPECT_EQ(metadata.boolean("a.bool"), true);
  EXPECT_EQ(metadata.unsigned_integer("a.u64"), uint64_t{1} << 63);
  EXPECT_EQ(metadata.number("a.i64"), -5.0);
  EXPECT_EQ(metadata.number("a.f64"), 0.1);
}

TEST(Reader, ReadsArrays) {
  const Bytes bytes = test::tiny_gguf().encode();
  const Header header = parse(bytes);
  EXPECT_THAT(header.metadata.array("b.strings")->strings, ElementsAre("one", "", "three"));
  const Array& numbers = *header.metadata.array("b.i32");
  EXPECT_EQ(numbers.element, ValueType::kI32);
  ASSERT_EQ(numbers.count, 3u);
  EXPECT_EQ(numbers.integer(0), -1);
  EXPECT_EQ(numbers.integer(2), 2147483647);
  EXPECT_EQ(header.metadata.array("b.f32")->number(1), -2.0);
  EXPECT_EQ(header.metadata.array("b.empty")->count, 0u);
  EXPECT_EQ(header.metadata.array("b.bools")->integer(1), 1);
}

TEST(Reader, ReadsTensors) {
  const Bytes bytes = test::tiny_gguf().encode();
  const Header header = parse(bytes);
  ASSERT_EQ(header.tensors.size(), 3u);
  const TensorInfo& first = header.tensors[0];
  EXPECT_EQ(first.name, "first.weight");
  EXPECT_EQ(first.type, 0u);
  EXPECT_EQ(first.dimensions, 2u);
  EXPECT_THAT(first.ne, ElementsAre(3, 2, 1, 1));
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.bytes, 24u);
  EXPECT_EQ(header.tensors[1].bytes, 68u);
  EXPECT_THAT(header.tensors[2].ne, ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(header.tensors[2].offset, 128u);
  EXPECT_EQ(header.data_start % 32, 0u);
  EXPECT_EQ(header.data_start + 160, bytes.size());
}

TEST(Reader, Version2HasTheSameLayout) {
  GgufSketch sketch = test::tiny_gguf();
  sketch.version = 2;
  const Bytes bytes = sketch.encode();
  EXPECT_EQ(parse(bytes).version, 2u);
}

TEST(Reader, AFileWithoutTensorsMayEndBeforeItsPadding) {
  GgufSketch sketch;
  sketch.keys = {test::encode_string_key("general.architecture", "x")};
  sketch.alignment = 1;
  const Bytes bytes = sketch.encode();
  ASSERT_NE(bytes.size() % 32, 0u);
  const Header header = parse(bytes);
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_EQ(header.metadata.string("general.architecture"), "x");
}

TEST(Reader, AnEmptyContainerIsValid) {
  const Bytes bytes = GgufSketch{}.encode();
  const Header header = parse(bytes);
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_TRUE(header.metadata.entries().empty());
}

TEST(Reader, HonoursTheAlignmentKeyOfAnyIntegerType) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u, 1u << 20}) {
    GgufSketch sketch;
    sketch.keys = {test::encode_key("general.alignment", 4, alignment)};
    sketch.tensors = {{"t", {1}, 0, 0}, {"u", {1}, 0, alignment}};
    sketch.alignment = alignment;
    sketch.data_bytes = alignment + 4;
    const Bytes bytes = sketch.encode();
    const Header header = parse(bytes);
    EXPECT_EQ(header.alignment, alignment);
    EXPECT_EQ(header.data_start % alignment, 0u);
  }
}

TEST(Reader, TensorsMayBeListedInAnyOrderAndLeaveGaps) {
  GgufSketch sketch;
  sketch.tensors = {{"late", {8}, 0, 64}, {"early", {8}, 0, 0}};
  sketch.data_bytes = 96;
  const Bytes bytes = sketch.encode();
  EXPECT_EQ(parse(bytes).tensors[1].name, "early");
}

TEST(Reader, TensorsMayTouchButNotOverlap) {
  GgufSketch sketch;
  sketch.tensors = {{"a", {8}, 0, 0}, {"b", {8}, 0, 32}};
  sketch.data_bytes = 64;
  const Bytes touching = sketch.encode();
  EXPECT_EQ(parse(touching).tensors.size(), 2u);
  sketch.tensors[0].ne = {9};
  const Bytes overlapping = sketch.encode();
  EXPECT_THROW(parse(overlapping), Error);
}

TEST(Reader, NamesOf63BytesAreTheLongest) {
  GgufSketch sketch;
  sketch.tensors = {{std::string(63, 'n'), {8}, 0, 0}};
  sketch.data_bytes = 32;
  const Bytes bytes = sketch.encode();
  EXPECT_EQ(parse(bytes).tensors[0].name.size(), 63u);
}

}  // namespace
}  // namespace carat::gguf
