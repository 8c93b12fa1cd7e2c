#include "base/byte_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace carat {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(ByteReader, ReadsLittleEndianFrontToBack) {
  const auto bytes = bytes_of({0x01, 0x34, 0x12, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x80, 0x3f, 'h', 'i'});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<uint8_t>("a"), 1);
  EXPECT_EQ(reader.read<uint16_t>("b"), 0x1234);
  EXPECT_EQ(reader.read<int32_t>("c"), -1);
  EXPECT_EQ(reader.read<float>("d"), 1.0f);
  EXPECT_EQ(reader.position(), 11u);
  EXPECT_EQ(reader.remaining(), 2u);
  EXPECT_EQ(as_text(reader.take(2, "e")), "hi");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, TakingNothingIsAlwaysPossible) {
  ByteReader reader{std::span<const std::byte>()};
  EXPECT_TRUE(reader.take(0, "nothing").empty());
  EXPECT_EQ(as_text({}), "");
}

TEST(ByteReader, AReadBeyondTheEndNamesValueAndPlace) {
  const auto bytes = bytes_of({1, 2, 3, 4, 5});
  ByteReader reader(bytes);
  reader.take(2, "start");
  try {
    reader.read<uint32_t>("the count");
    FAIL() << "read beyond the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_THAT(error.what(), testing::HasSubstr("the count at byte 2 needs 4 bytes but only 3 are left"));
  }
  EXPECT_EQ(reader.position(), 2u) << "a failed read takes nothing";
  EXPECT_EQ(reader.read<uint16_t>("rest"), 0x0403);
}

TEST(ByteReader, SizesNearTheLimitDoNotWrapAround) {
  const auto bytes = bytes_of({1, 2, 3});
  ByteReader reader(bytes);
  reader.take(1, "start");
  for (const uint64_t size : {uint64_t{3}, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_THROW(reader.take(size, "text"), Error);
  }
}

}  // namespace
}  // namespace carat
