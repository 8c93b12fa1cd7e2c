#include "gguf/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace carat::gguf {
namespace {

using namespace std::string_literals;

TEST(Printable, KeepsReadableText) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(printable("größer 模型 🙂"), "'größer 模型 🙂'");
  EXPECT_EQ(printable(""), "''");
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[31m\n\0\x7f"s), "'a\\x1b[31m\\x0a\\x00\\x7f'");
  EXPECT_EQ(printable("\xc2\x9b"), "'\\xc2\\x9b'");  // the one-character form of ESC [
}

TEST(Printable, EscapesMalformedUtf8) { EXPECT_EQ(printable("\xff\xe2\x82"), "'\\xff\\xe2\\x82'"); }

TEST(Printable, CutsLongTextsBetweenCharacters) {
  EXPECT_EQ(printable(std::string(96, 'x')), "'" + std::string(96, 'x') + "'");
  EXPECT_EQ(printable(std::string(97, 'x')), "'" + std::string(96, 'x') + "'... (97 bytes)");
  EXPECT_EQ(printable(std::string(95, 'x') + "ü" + "y"), "'" + std::string(95, 'x') + "ü'... (98 bytes)");
}

}  // namespace
}  // namespace carat::gguf
