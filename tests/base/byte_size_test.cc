#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace carat {
namespace {

TEST(ByteSize, KeepsThreeDigits) {
  EXPECT_EQ(byte_size(0), "0 B");
  EXPECT_EQ(byte_size(999), "999 B");
  EXPECT_EQ(byte_size(1000), "1.00 kB");
  EXPECT_EQ(byte_size(16'100'000), "16.1 MB");
  EXPECT_EQ(byte_size(999'600'000), "1.00 GB");
  EXPECT_EQ(byte_size(123'456'789'012), "123 GB");
  EXPECT_EQ(grouped(7), "7");
  EXPECT_EQ(grouped(1'863'057'408), "1,863,057,408");
}

}  // namespace
}  // namespace carat
