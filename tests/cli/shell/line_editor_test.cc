// The line editor with keys typed into a pseudo-terminal, and with pipes.
#include "cli/shell/line_editor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "cli/shell/terminal_editor.h"
#include "cli/shell/terminal_guard.h"
#include "support/files.h"

namespace carat::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr int kPatienceMilliseconds = 10'000;

// Reads with the editor until the end, and reports what came, one line each.
void report_inputs(LineEditor& editor, int report) {
  std::string line;
  while (true) {
    const LineEditor::Read read = editor.read("\x1b[1m>\x1b[0m ", line);
    std::string text = "end";
    if (read == LineEditor::Read::kInterrupted) text = "interrupted";
    if (read == LineEditor::Read::kLine) text = fmt::format("{}[{}]", editor.was_quoted() ? "quoted" : "line", line);
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "⏎");
    text += '\n';
    if (::write(report, text.data(), text.size()) < 0) _exit(9);
    if (read == LineEditor::Read::kEnd) return;
  }
}

std::vector<std::string> completions(std::string_view line, size_t cursor) {
  if (line.substr(0, cursor).starts_with("/set ")) return {"temp", "top-k", "top-p"};
  return {"/help", "/save", "/set", "/stats"};
}

// A process that edits lines in a terminal of its own.
class EditingProcess {
 public:
  explicit EditingProcess(const std::string& history_file, const char* locale = "C.UTF-8", const char* term = "xterm") {
    int report[2];
    if (::pipe(report) != 0) throw std::runtime_error("no pipe");
    winsize size = {24, 60, 0, 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ < 0) throw std::runtime_error("no pseudo-terminal");
    if (child_ == 0) {
      ::setenv("TERM", term, 1);
      ::setenv("LC_ALL", locale, 1);
      ::setenv("HOME", "/nonexistent", 1);  // nobody's ~/.editrc
      std::signal(SIGTERM, [](int) {
        restore_terminal();
        _exit(42);
      });
      try {
        LineEditor editor({history_file, completions, nullptr});
        report_inputs(editor, report[1]);
      } catch (...) {
        _exit(8);
      }
      _exit(0);
    }
    ::close(report[1]);
    report_ = report[0];
  }

  ~EditingProcess() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(report_);
    ::close(terminal_);
  }
  EditingProcess(const EditingProcess&) = delete;
  EditingProcess& operator=(const EditingProcess&) = delete;

  void type(std::string_view keys) {
    // A terminal takes only so much at once, and shows what was typed in the meantime.
    while (!keys.empty()) {
      const ssize_t written = ::write(terminal_, keys.data(), std::min<size_t>(keys.size(), 512));
      ASSERT_GT(written, 0);
      keys.remove_prefix(static_cast<size_t>(written));
      drain();
    }
  }

  // The next input that the editor gave.
  std::string input() {
    size_t end;
    while ((end = reported_.find('\n')) == std::string::npos) {
      if (!wait_for_data()) return "nothing came; the screen shows " + shown_;
    }
    const std::string text = reported_.substr(0, end);
    reported_.erase(0, end + 1);
    return text;
  }

  // Waits until the terminal has been sent `text`, and forgets everything up to there.
  testing::AssertionResult shows(std::string_view text) {
    size_t at;
    while ((at = shown_.find(text)) == std::string::npos) {
      if (!wait_for_data()) return testing::AssertionFailure() << text << " is not in " << shown_;
    }
    shown_.erase(0, at + text.size());
    return testing::AssertionSuccess();
  }

  // What the terminal has been sent since the last `shows` and before `text`.
  std::string shown_before(std::string_view text) {
    while (shown_.find(text) == std::string::npos) {
      if (!wait_for_data()) return "it never came after " + shown_;
    }
    return shown_.substr(0, shown_.find(text));
  }

  termios settings() const {
    termios settings = {};
    EXPECT_EQ(::tcgetattr(terminal_, &settings), 0);
    return settings;
  }

  void resize(unsigned short columns) {
    const winsize size = {24, columns, 0, 0};
    ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }

  void send(int signal) { ::kill(child_, signal); }

  int exit_status() {
    // What the process still writes must be taken, or it would wait.
    while (wait_for_data()) {
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  bool take(int descriptor, std::string& into) {
    char block[4096];
    const ssize_t got = ::read(descriptor, block, sizeof(block));
    if (got <= 0) return false;
    into.append(block, static_cast<size_t>(got));
    return true;
  }

  // False when nothing comes any more.
  bool wait_for_data(int milliseconds = kPatienceMilliseconds) {
    pollfd sources[2] = {{report_open_ ? report_ : -1, POLLIN, 0}, {terminal_open_ ? terminal_ : -1, POLLIN, 0}};
    if (::poll(sources, 2, milliseconds) <= 0) return false;
    bool any = false;
    if (sources[0].revents != 0) any |= report_open_ = take(report_, reported_);
    if (sources[1].revents != 0) any |= terminal_open_ = take(terminal_, shown_);
    return any || report_open_ || terminal_open_;
  }

  void drain() {
    while (wait_for_data(0)) {
    }
  }

  pid_t child_ = -1;
  int terminal_ = -1;
  int report_ = -1;
  bool report_open_ = true;
  bool terminal_open_ = true;
  std::string reported_;
  std::string shown_;
};

// The prompt, with its colours, of a line that is about to be edited: from here on keys mean what they mean to the
// editor.
constexpr std::string_view kPrompt = "\x1b[?2004h\x1b[1m>\x1b[0m ";
constexpr std::string_view kContinued = "\x1b[?2004h... ";

class LineEditorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!TerminalEditor::is_available()) GTEST_SKIP() << "skipped: built without libedit";
  }

  test::TemporaryDirectory folder_;
  std::string history_ = folder_.file("history");
};

TEST_F(LineEditorTest, EditsALine) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("helo\x1b[Dl\r");  // left, and the missing letter
  EXPECT_EQ(process.input(), "line[hello]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("world\x01my \x05!\r");  // to the start, to the end
  EXPECT_EQ(process.input(), "line[my world!]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("two words\x17x\x1b[Hy \x1b[F!\r");  // the last word goes; Home and End
  EXPECT_EQ(process.input(), "line[y two x!]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("gone\x15stays\r");
  EXPECT_EQ(process.input(), "line[stays]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\r");
  EXPECT_EQ(process.input(), "line[]");
}

TEST_F(LineEditorTest, TakesUtf8InAnyLocale) {
  for (const char* locale : {"C.UTF-8", "C"}) {
    EditingProcess process("", locale);
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("Grüße 日本 🙂x\x7f!\r");
    EXPECT_EQ(process.input(), "line[Grüße 日本 🙂!]") << locale;
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("日本\x7f語\xff\r");  // a byte that is no UTF-8
    EXPECT_EQ(process.input(), "line[日語\ufffd]") << locale;
  }
}

TEST_F(LineEditorTest, ControlTokensAreText) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("<|turn>model <bos> a\\\r");  // and a backslash at the end continues nothing
  EXPECT_EQ(process.input(), "line[<|turn>model <bos> a\\]");
}

TEST_F(LineEditorTest, CtrlCAbandonsTheLine) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("never mind");
  ASSERT_TRUE(process.shows("never mind"));
  process.type("\x03");
  EXPECT_EQ(process.input(), "interrupted");
  EXPECT_THAT(process.shown_before("\r\n"), AllOf(EndsWith("^C"), Not(HasSubstr("never"))));  // not drawn again
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("next\r");
  EXPECT_EQ(process.input(), "line[next]");
}

TEST_F(LineEditorTest, CtrlDEndsOnlyAnEmptyLine) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("ab\x01\x04\r");  // within a line it deletes
  EXPECT_EQ(process.input(), "line[b]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x04");
  EXPECT_EQ(process.input(), "end");
  EXPECT_EQ(process.exit_status(), 0);
}

TEST_F(LineEditorTest, TabCompletes) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("/h\t\r");
  EXPECT_EQ(process.input(), "line[/help ]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("/s\t");  // several: they are listed
  EXPECT_TRUE(process.shows("/save  /set  /stats"));
  process.type("t\ta\t\r");  // "/st" can only become "/stats"
  EXPECT_EQ(process.input(), "line[/stats a]");
}

TEST_F(LineEditorTest, TabAddsWhatAllChoicesShare) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("/set to\tk\r");
  EXPECT_EQ(process.input(), "line[/set top-k]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("/x\t\r");  // nothing to complete to
  EXPECT_EQ(process.input(), "line[/x]");
}

TEST_F(LineEditorTest, HistoryComesBack) {
  {
    EditingProcess process(history_);
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("first\r");
    EXPECT_EQ(process.input(), "line[first]");
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("second\r");
    EXPECT_EQ(process.input(), "line[second]");
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("\x1b[A\x1b[A!\r");
    EXPECT_EQ(process.input(), "line[first!]");
    ASSERT_TRUE(process.shows(kPrompt));
    process.type("\x04");
    EXPECT_EQ(process.input(), "end");
  }
  EditingProcess process(history_);
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x1b[A\x1b[A\r");
  EXPECT_EQ(process.input(), "line[second]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x12irst!\r");  // Ctrl-R, and Enter takes what it found
  EXPECT_THAT(process.input(), HasSubstr("first!"));
}

TEST_F(LineEditorTest, QuotesHoldSeveralLines) {
  EditingProcess process(history_);
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\"\"\"\r");
  for (const char* line : {"one\r", "/help\r", "\r", "three\"\"\"\r"}) {
    ASSERT_TRUE(process.shows(kContinued));
    process.type(line);
  }
  EXPECT_EQ(process.input(), "quoted[one⏎/help⏎⏎three]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\"\"\"one line\"\"\"\r");
  EXPECT_EQ(process.input(), "quoted[one line]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x1b[A\x1b[A\r");  // the first one again, whole
  EXPECT_EQ(process.input(), "quoted[one⏎/help⏎⏎three]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\"\"\"abandoned\r");
  ASSERT_TRUE(process.shows(kContinued));
  process.type("\x03");
  EXPECT_EQ(process.input(), "interrupted");
}

TEST_F(LineEditorTest, PastedTextIsOneInput) {
  EditingProcess process(history_);
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("see: \x1b[200~one\rtwo\r\n\tthree\x1b[31m\x03\n\x1b[201~ ok\r");
  EXPECT_EQ(process.input(), "line[see: one⏎two⏎\tthree[31m ok]");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x1b[A\r");
  EXPECT_EQ(process.input(), "line[see: one⏎two⏎\tthree[31m ok]");
}

TEST_F(LineEditorTest, PastesManyLines) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  std::string text;
  std::string expected;
  for (int i = 0; i < 500; ++i) {
    text += fmt::format("line {} of a long text\r", i);
    expected += fmt::format("line {} of a long text{}", i, i < 499 ? "⏎" : "");
  }
  process.type("\x1b[200~" + text + "\x1b[201~\r");
  EXPECT_EQ(process.input(), "line[" + expected + "]");
}

TEST_F(LineEditorTest, TheTerminalIsAsBefore) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  EXPECT_EQ(process.settings().c_lflag & (ICANON | ECHO | ISIG), 0u);
  process.type("x\r");
  EXPECT_EQ(process.input(), "line[x]");
  ASSERT_TRUE(process.shows("\x1b[?2004l"));
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("\x04");
  EXPECT_EQ(process.input(), "end");
  const tcflag_t cooked = ICANON | ECHO | ISIG;
  EXPECT_EQ(process.settings().c_lflag & cooked, cooked);
  EXPECT_TRUE(process.shows("\x1b[?2004l"));
}

TEST_F(LineEditorTest, TheTerminalIsAsBeforeAfterASignal) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("half a li");
  ASSERT_TRUE(process.shows("li"));
  process.send(SIGTERM);
  ASSERT_TRUE(process.shows("\x1b[?2004l"));
  const tcflag_t cooked = ICANON | ECHO | ISIG;
  EXPECT_EQ(process.settings().c_lflag & cooked, cooked);
  EXPECT_EQ(process.exit_status(), 42);
}

TEST_F(LineEditorTest, AResizedWindowLosesNothing) {
  EditingProcess process("");
  ASSERT_TRUE(process.shows(kPrompt));
  process.type("typed before the change");
  ASSERT_TRUE(process.shows("change"));
  process.resize(20);
  // 25 columns are two rows now: up by one, and everything is drawn again.
  ASSERT_TRUE(process.shows("\x1b[1A\r\x1b[J"));
  ASSERT_TRUE(process.shows(">\x1b[0m "));
  process.type(" and after\r");
  EXPECT_EQ(process.input(), "line[typed before the change and after]");
}

// TERM=dumb, or a build without libedit.
TEST(PlainLines, AreReadFromATerminalWithoutAnEditor) {
  EditingProcess process("", "C.UTF-8", "dumb");
  ASSERT_TRUE(process.shows("\x1b[1m>\x1b[0m "));
  process.type("hello\n\"\"\"a\nb\"\"\"\n\x04");
  EXPECT_EQ(process.input(), "line[hello]");
  EXPECT_EQ(process.input(), "quoted[a⏎b]");
  EXPECT_EQ(process.input(), "end");
}

// What the editor makes of standard input that is a pipe; a process of its own, since it is standard input.
std::vector<std::string> inputs_from_pipe(std::string_view bytes) {
  int input[2];
  int report[2];
  EXPECT_EQ(::pipe(input), 0);
  EXPECT_EQ(::pipe(report), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::close(input[1]);
    LineEditor editor({});
    report_inputs(editor, report[1]);
    _exit(0);
  }
  ::close(input[0]);
  ::close(report[1]);
  EXPECT_EQ(::write(input[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(input[1]);
  std::string text;
  char block[4096];
  for (ssize_t got; (got = ::read(report[0], block, sizeof(block))) > 0;) text.append(block, static_cast<size_t>(got));
  ::close(report[0]);
  ::waitpid(child, nullptr, 0);
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

TEST(PlainLines, AreReadFromAPipe) {
  EXPECT_THAT(inputs_from_pipe(""), ElementsAre("end"));
  EXPECT_THAT(inputs_from_pipe("one\ntwo\r\n\nthree"),
              ElementsAre("line[one]", "line[two]", "line[]", "line[three]", "end"));
  EXPECT_THAT(inputs_from_pipe("a\\\nb\tc\x03\n"), ElementsAre("line[a\\]", "line[b\tc\x03]", "end"));
}

TEST(PlainLines, QuotesEndAtTheEndOfTheInput) {
  EXPECT_THAT(inputs_from_pipe("\"\"\"\na\nb\n\"\"\"  \nc\n"), ElementsAre("quoted[a⏎b]", "line[c]", "end"));
  EXPECT_THAT(inputs_from_pipe("\"\"\"a \"\"\" b\nc"), ElementsAre("quoted[a \"\"\" b⏎c]", "end"));
  EXPECT_THAT(inputs_from_pipe("\"\"\"\"\"\"\n"), ElementsAre("quoted[]", "end"));
  EXPECT_THAT(inputs_from_pipe("say \"\"\"\n"), ElementsAre("line[say \"\"\"]", "end"));
}

TEST(CompleteWord, AddsWhatIsCertain) {
  EXPECT_EQ(complete_word("/h", {"/help", "/save"}).addition, "elp ");
  EXPECT_EQ(complete_word("fo", {"folder/"}).addition, "lder/");
  EXPECT_EQ(complete_word("t", {"top-k", "top-p"}).addition, "op-");
  EXPECT_THAT(complete_word("t", {"top-k", "top-p"}).choices, ElementsAre());
  EXPECT_EQ(complete_word("top-", {"top-k", "top-p"}).addition, "");
  EXPECT_THAT(complete_word("top-", {"top-k", "x", "top-p"}).choices, ElementsAre("top-k", "top-p"));
  EXPECT_THAT(complete_word("z", {"top-k"}).choices, ElementsAre());
  EXPECT_EQ(complete_word("", {"only"}).addition, "only ");
}

}  // namespace
}  // namespace carat::cli
