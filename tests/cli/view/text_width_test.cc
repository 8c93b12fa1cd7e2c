// Columns of text, and text made safe for a terminal.
#include "cli/view/text_width.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <string>

#include "base/error.h"
#include "cli/view/sanitise.h"
#include "cli/view/screen.h"
#include "cli/view/styled_text.h"
#include "support/random.h"

namespace carat::cli {
namespace {

TEST(TextWidth, CountsColumns) {
  EXPECT_EQ(text_width(""), 0u);
  EXPECT_EQ(text_width("carat"), 5u);
  EXPECT_EQ(text_width("naïve"), 5u);
  EXPECT_EQ(text_width("nai\u0308ve"), 5u);  // the dots as a mark of their own
  EXPECT_EQ(text_width("日本語"), 6u);
  EXPECT_EQ(text_width("한국어"), 6u);
  EXPECT_EQ(text_width("🙂"), 2u);
  EXPECT_EQ(text_width("a\u200bb"), 2u);
  EXPECT_EQ(text_width("│ ─ • …"), 7u);
  EXPECT_EQ(text_width("\t\n\x1b\x7f"), 0u);
  EXPECT_EQ(text_width("\xff\xfe"), 2u);  // two bytes that are no UTF-8: two replacement characters
}

TEST(TextWidth, KeepsUnitsTogether) {
  EXPECT_EQ(first_unit("e\u0301x").bytes, "e\u0301");
  EXPECT_EQ(first_unit("👍🏽!").bytes, "👍🏽");
  EXPECT_EQ(first_unit("🇨🇭🇫🇷").bytes, "🇨🇭");
  EXPECT_EQ(first_unit("👩‍💻x").bytes, "👩‍💻");
  EXPECT_EQ(first_unit("❤️x").bytes, "❤️");
  EXPECT_EQ(first_unit("❤️x").columns, 2u);
  EXPECT_EQ(first_unit("ab").bytes, "a");
  EXPECT_EQ(first_unit("\n\u0301").bytes, "\n");
}

TEST(TextWidth, CutsBetweenUnits) {
  EXPECT_EQ(cut_to_width("abc", 2), "ab");
  EXPECT_EQ(cut_to_width("日本", 3), "日");
  EXPECT_EQ(cut_to_width("e\u0301e\u0301", 1), "e\u0301");
  EXPECT_EQ(cut_to_width("abc", 0), "");
  EXPECT_EQ(cut_to_width("abc", 9), "abc");
}

// The C library knows the widths of the same characters; it lists some joining characters as wide as others do not.
TEST(TextWidth, AgreesWithTheCLibrary) {
  ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
  size_t known = 0;
  size_t different = 0;
  for (uint32_t code_point = 0x20; code_point < 0x110000; ++code_point) {
    const int width = ::wcwidth(static_cast<wchar_t>(code_point));
    if (width < 0 || (code_point >= 0xe000 && code_point < 0xf900)) continue;
    ++known;
    if (static_cast<unsigned>(width) != code_point_width(code_point)) ++different;
  }
  EXPECT_GT(known, 100000u);
  EXPECT_LT(different, known / 200);
}

TEST(Sanitise, ReplacesEveryControlCharacter) {
  for (int byte = 0; byte < 0x20; ++byte) {
    const std::string text = {'a', static_cast<char>(byte), 'b'};
    if (byte == '\n' || byte == '\t') {
      EXPECT_EQ(sanitise(text), text);
      continue;
    }
    std::string picture;
    append_utf8(picture, 0x2400 + static_cast<uint32_t>(byte));
    EXPECT_EQ(sanitise(text), "a" + picture + "b") << byte;
  }
  EXPECT_EQ(sanitise("a\x7f"), "a␡");
  for (uint32_t code_point = 0x80; code_point < 0xa0; ++code_point) {
    std::string text;
    append_utf8(text, code_point);
    EXPECT_EQ(sanitise(text), "\ufffd") << code_point;
    EXPECT_EQ(sanitise(std::string(1, static_cast<char>(code_point))), "\ufffd") << code_point;  // the bare byte
  }
}

TEST(Sanitise, TakesThePowerFromSequences) {
  EXPECT_EQ(sanitise("\x1b]52;c;ZXZpbA==\x07"), "␛]52;c;ZXZpbA==␇");  // clipboard
  EXPECT_EQ(sanitise("\x1b]0;title\x1b\\"), "␛]0;title␛\\");
  EXPECT_EQ(sanitise("\x1b[2J\x1b[31mred"), "␛[2J␛[31mred");
  EXPECT_EQ(sanitise("\u009b2J"), "\ufffd2J");
  EXPECT_EQ(sanitise("rm \u202ecod.exe"), "rm \ufffdcod.exe");
  EXPECT_EQ(sanitise("secret\rpublic"), "secret␍public");
  EXPECT_EQ(sanitise("a\b\bb"), "a␈␈b");
}

TEST(Sanitise, KeepsText) {
  const std::string text = "Ünï ☃ 日本 🙂 e\u0301\tx\n";
  EXPECT_EQ(sanitise(text), text);
  EXPECT_EQ(sanitise("one\r\ntwo\r\n"), "one\ntwo\n");
}

TEST(Sanitise, PiecesMakeNoDifference) {
  test::Random random(1);
  const std::string parts[] = {"a",        "\r",       "\n",   "\r\n",   "日",     "🙂",
                               "\x1b[31m", "\xe6\x97", "\xff", "\u009b", "\u202e", " "};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += parts[random.below(std::size(parts))];
    Sanitiser sanitiser;
    std::string joined;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random.below(4);
      joined += sanitiser.append(std::string_view(text).substr(at, length));
      at += length;
    }
    joined += sanitiser.finish();
    EXPECT_EQ(joined, sanitise(text));
  }
}

std::vector<std::string> lines_of(std::string_view text, size_t width) { return wrap_plain(text, width); }

TEST(Wrap, BreaksBetweenWords) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("the quick  brown fox", 10), (Lines{"the quick", "brown fox"}));
  EXPECT_EQ(lines_of("one\n\ntwo", 10), (Lines{"one", "", "two"}));
  EXPECT_EQ(lines_of("incomprehensibilities", 10), (Lines{"incomprehe", "nsibilitie", "s"}));
  EXPECT_EQ(lines_of("a incomprehensible b", 10), (Lines{"a", "incomprehe", "nsible b"}));
  EXPECT_EQ(lines_of("日本語の文章です。", 6), (Lines{"日本語", "の文章", "です。"}));
  EXPECT_EQ(lines_of("日本語。", 6), (Lines{"日本", "語。"}));  // no full stop at the start of a line
  EXPECT_EQ(lines_of("x\u00a0y z", 3), (Lines{"x\u00a0y", "z"}));
  EXPECT_EQ(lines_of("", 10), Lines{});
}

// A pseudo-terminal of a given size.
class Pty {
 public:
  Pty(unsigned short columns, unsigned short rows) {
    winsize size = {rows, columns, 0, 0};
    EXPECT_EQ(::openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
  }
  ~Pty() {
    ::close(master_);
    ::close(slave_);
  }
  int slave() const { return slave_; }
  void resize(unsigned short columns, unsigned short rows) {
    winsize size = {rows, columns, 0, 0};
    ASSERT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
  }

 private:
  int master_ = -1;
  int slave_ = -1;
};

TEST(Screen, FollowsTheTerminal) {
  Pty pty(40, 10);
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  const Screen screen = Screen::of(pty.slave(), ColourChoice::kAuto);
  EXPECT_TRUE(screen.is_terminal);
  EXPECT_TRUE(screen.can_move_cursor);
  EXPECT_TRUE(screen.colour);
  EXPECT_EQ(screen.columns(), 40u);
  EXPECT_EQ(screen.rows(), 10u);
  pty.resize(132, 43);
  EXPECT_EQ(screen.columns(), 132u);
  EXPECT_EQ(screen.rows(), 43u);
}

TEST(Screen, RespectsTheEnvironment) {
  Pty pty(0, 0);
  ::setenv("TERM", "xterm", 1);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(Screen::of(pty.slave(), ColourChoice::kAuto).colour);
  EXPECT_TRUE(Screen::of(pty.slave(), ColourChoice::kAlways).colour);
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(Screen::of(pty.slave(), ColourChoice::kAuto).colour);
  EXPECT_FALSE(Screen::of(pty.slave(), ColourChoice::kNever).colour);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Screen::of(pty.slave(), ColourChoice::kAuto).colour);
  EXPECT_FALSE(Screen::of(pty.slave(), ColourChoice::kAuto).can_move_cursor);
  EXPECT_TRUE(Screen::of(pty.slave(), ColourChoice::kAuto).is_terminal);

  // A terminal that does not know its size.
  const Screen screen = Screen::of(pty.slave(), ColourChoice::kAuto);
  ::setenv("COLUMNS", "61", 1);
  ::setenv("LINES", "17", 1);
  EXPECT_EQ(screen.columns(), 61u);
  EXPECT_EQ(screen.rows(), 17u);
  for (const char* nonsense : {"", "0", "-3", "12x", "99999999999"}) {
    ::setenv("COLUMNS", nonsense, 1);
    EXPECT_EQ(screen.columns(), 80u) << nonsense;
  }
  ::unsetenv("COLUMNS");
  ::unsetenv("LINES");
  EXPECT_EQ(screen.rows(), 24u);

  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  EXPECT_FALSE(Screen::of(null, ColourChoice::kAuto).is_terminal);
  EXPECT_FALSE(Screen::of(null, ColourChoice::kAuto).colour);
  ::close(null);
}

TEST(Screen, ColourIsOneOfThreeWords) {
  EXPECT_EQ(parse_colour_choice("auto"), ColourChoice::kAuto);
  EXPECT_EQ(parse_colour_choice("always"), ColourChoice::kAlways);
  EXPECT_EQ(parse_colour_choice("never"), ColourChoice::kNever);
  try {
    parse_colour_choice("yes");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_STREQ(error.what(), "--color yes: use auto, always or never");
  }
}

}  // namespace
}  // namespace carat::cli
