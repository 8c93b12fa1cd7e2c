#include "cli/view/thought_view.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "cli/view/status_line.h"
#include "cli/view/text_width.h"
#include "support/random.h"
#include "support/terminal_screen.h"

namespace carat::cli {
namespace {

constexpr std::string_view kThought =
    "The user wants a sum.\n\nSo I add the two numbers, digit by digit, from the right.";

// What a window of 30 by 10 shows of the thought in pieces of `length` bytes.
test::TerminalScreen show(std::string_view thought, ShowThinking how, bool colour, size_t length) {
  test::TerminalScreen terminal(30, 10);
  ThoughtView view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(30, 10, colour), how);
  uint32_t tokens = 0;
  for (size_t at = 0; at < thought.size(); at += length) {
    view.append(thought.substr(at, length));
    ++tokens;
    view.progress(0.1 * tokens, tokens);
  }
  view.finish(3.21, 412);
  return terminal;
}

TEST(ThoughtView, FullIsDimmedAndWrapped) {
  for (const size_t length : {1u, 3u, 7u, 1000u}) {
    const test::TerminalScreen terminal = show(kThought, ShowThinking::kFull, true, length);
    EXPECT_EQ(terminal.styled_text(),
              "{2}thinking\nThe user wants a sum.\n\nSo I add the two numbers,\ndigit by digit, from the\nright.\n\n")
        << length;
    EXPECT_EQ(terminal.cursor_column(), 0u);
    const test::TerminalScreen plain = show(kThought, ShowThinking::kFull, false, length);
    EXPECT_EQ(plain.style_changes(), 0u);
    EXPECT_EQ(plain.text(), terminal.text());
  }
}

TEST(ThoughtView, ShowsWordsAtOnce) {
  test::TerminalScreen terminal(30, 10);
  ThoughtView view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(30, 10, false),
                   ShowThinking::kFull);
  view.append("Let me se");
  EXPECT_EQ(terminal.text(), "thinking\nLet me se\n");
  view.append("e whether this word fits");
  EXPECT_EQ(terminal.text(), "thinking\nLet me see whether this word\nfits\n");
}

TEST(ThoughtView, SummaryIsOneLine) {
  test::TerminalScreen terminal(30, 10);
  ThoughtView view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(30, 10, true),
                   ShowThinking::kSummary);
  view.append("secret");
  view.progress(0.4, 1);
  EXPECT_EQ(terminal.text(), "thinking… 0 s, 1 token\n");
  view.progress(3.9, 128);
  EXPECT_EQ(terminal.styled_text(), "{2}thinking… 3 s, 128 tokens\n");
  view.finish(3.21, 412);
  EXPECT_EQ(terminal.styled_text(), "{2}thought for 3.2 s\n\n");  // no room for the tokens
}

TEST(ThoughtView, SummarySaysHowLongAndHowMuch) {
  test::TerminalScreen terminal(40, 10);
  ThoughtView view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(40, 10, false),
                   ShowThinking::kSummary);
  view.finish(3.21, 412);
  EXPECT_EQ(terminal.text(), "thought for 3.2 s (412 tokens)\n\n");
}

TEST(ThoughtView, SummaryFitsIntoAnyWindow) {
  for (unsigned columns = 2; columns < 40; ++columns) {
    test::TerminalScreen terminal(columns, 5);
    ThoughtView view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(columns, 5, true),
                     ShowThinking::kSummary);
    for (uint32_t i = 0; i < 20; ++i) view.progress(1000.0 * i, 1000 * i);
    EXPECT_EQ(terminal.lines().size(), 1u) << columns;
    view.finish(100000, 1000000);
    EXPECT_EQ(terminal.lines().size(), 2u) << columns;
  }
}

TEST(ThoughtView, NoneIsNothing) { EXPECT_EQ(show(kThought, ShowThinking::kNone, true, 3).text(), "\n"); }

TEST(ThoughtView, NothingThoughtIsNothingShown) { EXPECT_EQ(show("", ShowThinking::kFull, true, 3).text(), "\n"); }

TEST(ThoughtView, OffATerminalOnlyFullIsWritten) {
  Screen pipe;
  for (const ShowThinking how : {ShowThinking::kFull, ShowThinking::kSummary, ShowThinking::kNone}) {
    std::string written;
    ThoughtView view([&](std::string_view bytes) { written += bytes; }, pipe, how);
    view.append("a long thought, longer than lines are, with \x1b[31m and ");
    view.append("more");
    view.progress(1, 5);
    view.finish(2, 10);
    EXPECT_EQ(written,
              how == ShowThinking::kFull ? "a long thought, longer than lines are, with \x1b[31m and more\n" : "");
  }
}

TEST(ThoughtView, CannotControlTheTerminal) {
  // The terminal throws at sequences that are not ours.
  EXPECT_NE(show("\x1b]0;x\x07 \x9b", ShowThinking::kFull, true, 1).text().find("␛]0;x␇ \ufffd"), std::string::npos);
}

TEST(ThoughtView, FlagIsOneOfThreeWords) {
  EXPECT_EQ(parse_show_thinking("full"), ShowThinking::kFull);
  EXPECT_EQ(parse_show_thinking("summary"), ShowThinking::kSummary);
  EXPECT_EQ(parse_show_thinking("none"), ShowThinking::kNone);
  try {
    parse_show_thinking("yes");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_STREQ(error.what(), "--show-thinking yes: use full, summary or none");
  }
}

TurnStatus ordinary_status() {
  TurnStatus status;
  status.prompt_reused = 412;
  status.prompt_new = 31;
  status.prompt_tps = 1204;
  status.generated = 86;
  status.decode_tps = 412;
  status.context_used = 529;
  status.context_size = 4096;
  return status;
}

TEST(StatusLine, SaysLessWhereThereIsLessRoom) {
  const TurnStatus status = ordinary_status();
  EXPECT_EQ(status_line(status, 100),
            "prompt 412 reused + 31 new, 1,204 t/s · 86 tokens, 412 t/s · context 529/4,096 (13%)");
  EXPECT_EQ(status_line(status, 80), "prompt 412+31, 1,204 t/s · 86 tokens, 412 t/s · context 529/4,096");
  EXPECT_EQ(status_line(status, 60), "prompt 412+31 · 86 tokens, 412 t/s · context 13%");
  EXPECT_EQ(status_line(status, 40), "412+31 · 86 tok, 412 t/s · ctx 13%");
  EXPECT_EQ(status_line(status, 30), "86 tok, 412 t/s · ctx 13%");
  EXPECT_EQ(status_line(status, 20), "412 t/s · ctx 13%");
  EXPECT_EQ(status_line(status, 8), "ctx 13%");
}

TEST(StatusLine, SaysWhatLookupDid) {
  TurnStatus status = ordinary_status();
  status.drafted = 100;
  status.accepted = 71;
  status.tokens_per_pass = 3.1;
  EXPECT_EQ(status_line(status, 130),
            "prompt 412 reused + 31 new, 1,204 t/s · 86 tokens, 412 t/s · lookup 3.1 tokens/pass, 71% accepted · "
            "context 529/4,096 (13%)");
  EXPECT_EQ(status_line(status, 100),
            "prompt 412+31, 1,204 t/s · 86 tokens, 412 t/s · lookup 3.1/pass, 71% · context 529/4,096");
  EXPECT_EQ(status_line(status, 80), "prompt 412+31 · 86 tokens, 412 t/s · lookup 3.1/pass, 71% · context 13%");
  EXPECT_EQ(status_line(status, 60), "412+31 · 86 tok, 412 t/s · ctx 13%");
}

TEST(StatusLine, LeavesOutWhatIsNotKnown) {
  TurnStatus status;
  status.generated = 1;
  EXPECT_EQ(status_line(status, 100), "prompt 0 reused + 0 new · 1 token · context 0/0 (0%)");
  status.decode_tps = 3.14159;
  EXPECT_EQ(status_line(status, 100), "prompt 0 reused + 0 new · 1 token, 3.1 t/s · context 0/0 (0%)");
}

TEST(StatusLine, EndingAndNoteFollow) {
  TurnStatus status = ordinary_status();
  status.ending = "The answer was cut: the limit of 86 tokens (-n) is reached.";
  status.cache_note = "Everything was read again: the window has moved on.";
  EXPECT_EQ(status_line(status, 40),
            "412+31 · 86 tok, 412 t/s · ctx 13%\nThe answer was cut: the limit of 86\ntokens (-n) is reached.\n"
            "Everything was read again: the window\nhas moved on.");
}

TEST(StatusLine, NeverExceedsTheWindow) {
  test::Random random(5);
  for (unsigned columns = 1; columns <= 120; ++columns) {
    for (int round = 0; round < 50; ++round) {
      const auto number = [&] { return static_cast<uint32_t>(random.bits() >> (32 + random.below(32))); };
      TurnStatus status;
      status.prompt_reused = number();
      status.prompt_new = number();
      status.prompt_tps = number() / 10.0;
      status.generated = number();
      status.decode_tps = number() / 10.0;
      status.context_used = number();
      status.context_size = number();
      status.ending = random.below(2) == 0 ? "" : "A sentence with incomprehensibilities.";
      std::string rest = status_line(status, columns);
      while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        ASSERT_LE(text_width(rest.substr(0, end)), columns) << rest;
        rest.erase(0, end + 1);
      }
      const uint32_t total = number();
      const std::string progress = prefill_progress(number(), total, status.prompt_tps, columns);
      ASSERT_EQ(text_width(progress), std::max(columns, 2u) - 1) << progress;
    }
  }
}

TEST(PrefillProgress, ShowsHowFarAndHowLong) {
  EXPECT_EQ(prefill_progress(1024, 4096, 1500, 60), "████░░░░░░░░░░░░░░  25%  1,024/4,096 · 1,500 t/s · 3 s left");
  EXPECT_EQ(prefill_progress(4096, 4096, 1500, 40), "█████████ 100%  4,096/4,096 · 1,500 t/s");
  EXPECT_EQ(prefill_progress(4095, 4096, 0, 30), "██████████░  99%  4,095/4,096");
  EXPECT_EQ(prefill_progress(0, 100000, 100, 70).substr(0, 3), "░");
}

}  // namespace
}  // namespace carat::cli
