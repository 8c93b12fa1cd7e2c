#include "cli/view/message.h"

#include <gtest/gtest.h>

#include <string>

namespace carat::cli {
namespace {

const Screen kNarrow = Screen::of_size(20, 5, false);

TEST(MessageLines, AreBrokenBetweenWords) {
  EXPECT_EQ(message_lines("carat: warning: the model file recommends a lot", kNarrow),
            "carat: warning: the\nmodel file\nrecommends a lot\n");
  EXPECT_EQ(message_lines("carat: note: short", kNarrow), "carat: note: short\n");
  EXPECT_EQ(message_lines("", kNarrow), "\n");
}

TEST(MessageLines, FillALineToItsLastColumn) {
  EXPECT_EQ(message_lines("12345 7890 234567890", kNarrow), "12345 7890 234567890\n");
  EXPECT_EQ(message_lines("12345 7890 2345678901", kNarrow), "12345 7890\n2345678901\n");
}

TEST(MessageLines, ColumnsAreWhatATerminalShows) {
  EXPECT_EQ(message_lines("ääääääääää ääääääääää", kNarrow), "ääääääääää\nääääääääää\n");
  EXPECT_EQ(message_lines("äääää äääää äääääääää", kNarrow), "äääää äääää\näääääääää\n");
  EXPECT_EQ(message_lines("日本語日本語 日本語日本語", kNarrow), "日本語日本語\n日本語日本語\n");
}

TEST(MessageLines, KeepLongWordsWholeSoThatTheyCanBeCopied) {
  EXPECT_EQ(message_lines("cannot open /a/very/long/path/to/a/model.gguf: no such file", kNarrow),
            "cannot open\n/a/very/long/path/to/a/model.gguf:\nno such file\n");
}

TEST(MessageLines, KeepTheirOwnBreaksAndSpaces) {
  EXPECT_EQ(message_lines("one\n  two three four five six\nseven", kNarrow),
            "one\n  two three four\nfive six\nseven\n");
}

TEST(MessageLines, StayWholeWhereNobodyLooks) {
  Screen file = kNarrow;
  file.is_terminal = false;
  const std::string text = "carat: warning: the model file recommends a lot of things";
  EXPECT_EQ(message_lines(text, file), text + "\n");
}

}  // namespace
}  // namespace carat::cli
