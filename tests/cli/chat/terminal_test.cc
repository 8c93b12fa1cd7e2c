// The program as a person meets it: in a terminal, with keys and a screen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tmux_session.h"

namespace carat::test {
namespace {

using testing::HasSubstr;

class Terminal : public testing::Test {
 protected:
  void SetUp() override {
    if (!TmuxSession::is_installed()) GTEST_SKIP() << "skipped: no tmux";
  }

  static std::vector<std::string> carat(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), CARAT_PROGRAM);
    return arguments;
  }
};

// The terminal of the tests itself: it would make the others pass if it said yes to everything.
TEST_F(Terminal, ShowsWhatAProgramWritesAndHowItEnds) {
  TmuxSession session({"sh", "-c", "read line; printf '%s=%s' \"$line\" \"$VARIABLE\"; read line; exit 3"},
                      {40, 5, {"VARIABLE=ä b"}});
  session.send_line("$HOME 'x'");
  ASSERT_TRUE(session.wait_for("$HOME 'x'=ä b"));
  EXPECT_TRUE(session.is_running());
  session.send_key("Enter");
  EXPECT_TRUE(session.ends_with(3));
  EXPECT_FALSE(session.ends_with(0));
  const testing::AssertionResult missing = session.wait_for("not there");
  EXPECT_FALSE(missing);
  EXPECT_THAT(missing.message(), HasSubstr("the program ended before \"not there\"; the screen:"));
  EXPECT_THAT(missing.message(), HasSubstr("$HOME 'x'=ä b"));
}

TEST_F(Terminal, CanBeResized) {
  TmuxSession session({"sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"}, {40, 5, {}});
  ASSERT_TRUE(session.wait_for("ready"));
  session.resize(61, 13);
  EXPECT_TRUE(session.wait_for("13 61"));
}

class RunInATerminal : public Terminal {};

TEST_F(RunInATerminal, AnswersLineAfterLine) {
  TmuxSession session(carat({"run", "--temp", "0"}));
  ASSERT_TRUE(session.wait_for("Ctrl-D leaves.\n>"));
  session.send_line("My name is Clara.");
  ASSERT_TRUE(session.wait_for("complete]"));
  session.send_line("What is my name?");
  ASSERT_TRUE(session.wait_for("\nYour name is Clara."));
  ASSERT_TRUE(session.wait_for("more from the cache"));
  session.send_key("C-d");
  EXPECT_TRUE(session.ends_with(0));
}

TEST_F(RunInATerminal, CtrlCStopsTheAnswerAndTheNextOneLeaves) {
  TmuxSession session(carat({"run", "--device", "reference", "--temp", "0", "--ignore-eos"}));
  ASSERT_TRUE(session.wait_for("Ctrl-D leaves.\n>"));
  session.send_line("What is nginx?");
  ASSERT_TRUE(session.wait_for("\nnginx:"));
  session.send_key("C-c");
  ASSERT_TRUE(session.wait_for("interrupted]\n>"));
  session.send_key("C-c");
  EXPECT_TRUE(session.ends_with(130));
}

TEST_F(RunInATerminal, CtrlDLeaves) {
  TmuxSession session(carat({"run"}));
  ASSERT_TRUE(session.wait_for("Ctrl-D leaves.\n>"));
  session.send_key("C-d");
  EXPECT_TRUE(session.ends_with(0));
}

}  // namespace
}  // namespace carat::test
