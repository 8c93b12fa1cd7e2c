#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/random.h"

namespace carat {
namespace {

using namespace std::string_literals;

// Encodes by the table of the Unicode standard, also what UTF-8 forbids (surrogates, beyond U+10FFFF).
std::string encode(uint32_t code_point) {
  const auto byte = [](uint32_t value) { return static_cast<char>(static_cast<uint8_t>(value)); };
  const auto tail = [&](int shift) { return byte(0x80 | ((code_point >> shift) & 0x3f)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xc0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {byte(0xe0 | code_point >> 12), tail(6), tail(0)};
  return {byte(0xf0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

bool is_scalar(uint32_t code_point) { return code_point < 0xd800 || (code_point > 0xdfff && code_point < 0x110000); }

TEST(Utf8, EveryCodePointHasItsLength) {
  for (uint32_t code_point = 0; code_point < 0x120000; ++code_point) {
    const std::string text = encode(code_point);
    ASSERT_EQ(utf8_sequence_length(text), is_scalar(code_point) ? text.size() : 0) << code_point;
    ASSERT_EQ(utf8_sequence_length(text + "x"), is_scalar(code_point) ? text.size() : 0) << code_point;
  }
}

TEST(Utf8, IncompleteSuffixesOfEveryCodePoint) {
  for (uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (!is_scalar(code_point)) continue;
    const std::string text = encode(code_point);
    ASSERT_EQ(utf8_incomplete_suffix(text), 0u) << code_point;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(utf8_incomplete_suffix("ab" + text.substr(0, cut)), cut) << code_point;
      ASSERT_EQ(utf8_sequence_length(text.substr(0, cut)), 0u) << code_point;
    }
  }
}

TEST(Utf8, WhatCanNeverBeCompletedIsNotIncomplete) {
  EXPECT_EQ(utf8_incomplete_suffix(""), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("\x80\x80"), 0u);  // continuation bytes without a lead
  EXPECT_EQ(utf8_incomplete_suffix("\xc0"), 0u);      // overlong
  EXPECT_EQ(utf8_incomplete_suffix("\xe0\x80"), 0u);  // overlong
  EXPECT_EQ(utf8_incomplete_suffix("\xed\xa0"), 0u);  // surrogate
  EXPECT_EQ(utf8_incomplete_suffix("\xf4\x90"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(utf8_incomplete_suffix("\xf5"), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("\xff"), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("\xf0\x9f\x99\x82\x82"), 0u);  // one continuation byte too many
}

TEST(Utf8, OverlongFormsAreMalformed) {
  EXPECT_EQ(utf8_sequence_length("\xc0\xaf"), 0u);
  EXPECT_EQ(utf8_sequence_length("\xc1\xbf"), 0u);
  EXPECT_EQ(utf8_sequence_length("\xe0\x9f\xbf"), 0u);
  EXPECT_EQ(utf8_sequence_length("\xf0\x8f\xbf\xbf"), 0u);
}

TEST(Utf8, SanitiseKeepsGoodTextAndReplacesEachBadByte) {
  EXPECT_EQ(utf8_sanitise(""), "");
  EXPECT_EQ(utf8_sanitise("größe 模型 🙂\0"s), "größe 模型 🙂\0"s);
  EXPECT_EQ(utf8_sanitise("a\xff"
                          "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(utf8_sanitise("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(utf8_sanitise("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Utf8, SanitisedNoiseIsWellFormed) {
  test::Random random(4);
  for (int i = 0; i < 2000; ++i) {
    std::string noise;
    while (noise.size() < 50) {
      noise += random.below(3) == 0 ? encode(static_cast<uint32_t>(random.below(0x120000)))
                                    : std::string(1, static_cast<char>(random.below(256)));
    }
    const std::string clean = utf8_sanitise(noise);
    for (std::string_view rest = clean; !rest.empty();) {
      const size_t length = utf8_sequence_length(rest);
      ASSERT_NE(length, 0u);
      rest.remove_prefix(length);
    }
    EXPECT_EQ(utf8_sanitise(clean), clean);
  }
}

}  // namespace
}  // namespace carat
