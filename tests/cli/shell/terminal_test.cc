// The program as a person meets it: in a terminal, with keys and a screen, and the demo model answering. What is asked
// is what that model does reliably (greedy, so always alike).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "chat/weather_tool.h"
#include "support/tmux_session.h"

namespace carat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Terminal : public testing::Test {
 protected:
  void SetUp() override {
    if (!TmuxSession::is_installed()) GTEST_SKIP() << "skipped: no tmux";
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

// With all white space alike, so that it does not matter where lines were broken, as long as no word was.
std::string flowing(const std::string& text) {
  std::string result;
  std::istringstream words(text);
  for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class Chat : public Terminal {
 protected:
  // carat in a terminal of its own, with its history in this test's folder.
  TmuxSession start(std::vector<std::string> arguments, int columns = 80, const std::string& variable = "CARAT=1") {
    arguments.insert(arguments.begin(), CARAT_PROGRAM);
    return TmuxSession(arguments, {columns, 24, {"XDG_STATE_HOME=" + folder_.path().string(), variable}});
  }

  static testing::AssertionResult is_ready(const TmuxSession& session) {
    return session.wait_until([](const std::string& transcript) { return transcript.ends_with("leaves.\n>"); },
                              "the greeting and a prompt");
  }

  // Waits until, after the last time `shown` was there, `answer` has come and a new prompt.
  static testing::AssertionResult answers(const TmuxSession& session, const std::string& shown,
                                          const std::string& answer) {
    const auto has_answered = [&](const std::string& transcript) {
      const size_t question = transcript.rfind(shown + "\n");
      return question != std::string::npos && transcript.find(answer, question + shown.size()) != std::string::npos &&
             transcript.ends_with("\n>");
    };
    return session.wait_until(has_answered, "\"" + answer + "\" as the answer to \"" + shown + "\"");
  }

  // Types a question at the prompt and waits for the answer and the next prompt.
  static testing::AssertionResult asks(TmuxSession& session, const std::string& question, const std::string& answer) {
    session.send_line(question);
    return answers(session, "> " + question, answer);
  }

  TemporaryDirectory folder_;
};

// The slow executor without an end: there is always time to do something while it answers.
const std::vector<std::string> kEndlessAnswer = {"chat", "--device",     "reference",      "--temp",
                                                 "0",    "--ignore-eos", "--no-loop-guard"};

TEST_F(Chat, AnswersAndRemembers) {
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  ASSERT_TRUE(asks(session, "What is 57 + 26?", "\n57 + 26 = 83\n"));
  ASSERT_TRUE(asks(session, "My name is Clara.", "\nNice to meet you, Clara!\n"));
  ASSERT_TRUE(asks(session, "What is my name?", "\nYour name is Clara.\n"));
  // The status line; what lookup did may take the room of some words.
  EXPECT_THAT(session.transcript(), testing::ContainsRegex("prompt [0-9]+( reused [+] |[+])[0-9]+"));
  session.send_line("/exit");
  EXPECT_TRUE(session.ends_with(0));
}

TEST_F(Chat, TakesAMessageOfSeveralLines) {
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  session.send_line("\"\"\"");
  session.send_line("What is");
  session.send_line("12 + 34?");
  session.send_line("\"\"\"");
  ASSERT_TRUE(answers(session, "... \"\"\"", "\n12 + 34 = 46\n"));
}

TEST_F(Chat, ThinksWhenAsked) {
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  ASSERT_TRUE(asks(session, "/think on", "Thinking is on."));
  ASSERT_TRUE(asks(session, "What is 456 + 378?", "\n456 + 378 = 834\n"));
  EXPECT_THAT(session.transcript(), HasSubstr("carry 1"));
  ASSERT_TRUE(asks(session, "/set show-thinking none", "show-thinking"));
  ASSERT_TRUE(asks(session, "What is 456 + 378?", "\n456 + 378 = 834\n"));
}

TEST_F(Chat, AnswersInJson) {
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  const std::string question = "Extract name, age and city as JSON: Omar is 31 years old and lives in Oslo.";
  ASSERT_TRUE(asks(session, question, "}\n"));
  const std::string transcript = session.transcript();
  const size_t begin = transcript.find("\n{") + 1;
  const std::string answer = transcript.substr(begin, transcript.find('\n', begin) - begin);
  EXPECT_EQ(nlohmann::json::parse(answer), (nlohmann::json{{"name", "Omar"}, {"age", 31}, {"city", "Oslo"}}));
}

TEST_F(Chat, CarriesOutACallAfterAYes) {
  write_text(folder_.file("tools.json"), kWeatherTool);
  const std::string program = folder_.file("tool");
  write_text(program, "#!/bin/sh\ncd '" + folder_.path().string() +
                          "'\nprintf '%s\\n' \"$@\" > name\ncat > input\n"
                          "echo '{\"temperature\": 21, \"condition\": \"sunny\"}'\n");
  ::chmod(program.c_str(), 0700);
  TmuxSession session = start({"chat", "--temp", "0", "--tools", folder_.file("tools.json"), "--tool-exec", program});
  ASSERT_TRUE(is_ready(session));
  session.send_line("What is the weather in Paris?");
  ASSERT_TRUE(session.wait_for("[y]es, [n]o"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("name")));
  session.send_line("y");
  ASSERT_TRUE(answers(session, "> What is the weather in Paris?", "\nIn Paris it is sunny with 21 degrees.\n"));
  EXPECT_EQ(read_text(folder_.file("name")), "get_weather\n");
  EXPECT_EQ(nlohmann::json::parse(read_text(folder_.file("input"))), (nlohmann::json{{"city", "Paris"}}));
}

TEST_F(Chat, CtrlCStopsTheAnswerAndTheConversationGoesOn) {
  TmuxSession session = start(kEndlessAnswer);
  ASSERT_TRUE(is_ready(session));
  session.send_line("What is nginx?");
  ASSERT_TRUE(session.wait_for("\nnginx: small"));
  session.send_key("C-c");
  ASSERT_TRUE(answers(session, "> What is nginx?", "\ninterrupted\n"));
  session.send_line("What is 12 + 34?");
  ASSERT_TRUE(session.wait_for("\n12 + 34 = 46"));
  session.send_key("C-c");
  ASSERT_TRUE(answers(session, "> What is 12 + 34?", "\ninterrupted\n"));
}

TEST_F(Chat, ShowsHowFarALongPromptHasBeenRead) {
  TmuxSession session = start({"chat", "--device", "reference", "--temp", "0", "-ub", "8", "-n", "1"});
  ASSERT_TRUE(is_ready(session));
  std::string question = "What is nginx?";
  for (int i = 0; i < 100; ++i) question += " What is curl?";
  session.send_line(question);
  ASSERT_TRUE(session.wait_for(" reused + "));  // the status line, after the bar has gone
  const auto has_bar = [&](const std::string&) { return session.written().find("% ") != std::string::npos; };
  EXPECT_TRUE(session.wait_until(has_bar, "a bar that was shown"));
  EXPECT_THAT(session.screen(), Not(HasSubstr("% ")));
}

TEST_F(Chat, KeysTypedDuringAnAnswerStayOutOfIt) {
  TmuxSession session = start(kEndlessAnswer);
  ASSERT_TRUE(is_ready(session));
  session.send_line("What is nginx?");
  ASSERT_TRUE(session.wait_for("nginx: small"));
  session.send_text("xyzzy");
  const size_t before = session.transcript().size();
  ASSERT_TRUE(session.wait_until([&](const std::string& transcript) { return transcript.size() > before + 20; },
                                 "more of the answer"));
  EXPECT_THAT(session.transcript(), Not(HasSubstr("xyzzy")));
}

TEST_F(Chat, CtrlCTwiceAtThePromptLeaves) {
  TmuxSession session = start({"chat"});
  ASSERT_TRUE(is_ready(session));
  session.send_key("C-c");
  ASSERT_TRUE(session.wait_for("Ctrl-C again, Ctrl-D or /exit leaves.\n>"));
  session.send_key("C-c");
  EXPECT_TRUE(session.ends_with(0));
}

TEST_F(Chat, CtrlDLeaves) {
  TmuxSession session = start({"chat"});
  ASSERT_TRUE(is_ready(session));
  session.send_key("C-d");
  EXPECT_TRUE(session.ends_with(0));
}

TEST_F(Chat, SurvivesAResizeWhileItAnswers) {
  TmuxSession session = start(kEndlessAnswer);
  ASSERT_TRUE(is_ready(session));
  session.send_line("What is nginx?");
  ASSERT_TRUE(session.wait_for("\nnginx: small"));
  session.resize(44, 20);
  ASSERT_TRUE(session.wait_until(
      [](const std::string& transcript) {
        return flowing(transcript).find("high-performance web") != std::string::npos;
      },
      "more of the answer"));
  session.send_key("C-c");
  ASSERT_TRUE(answers(session, "> What is nginx?", "\ninterrupted\n"));
  const std::string shown = flowing(session.screen());
  EXPECT_THAT(shown, HasSubstr("nginx: small, powerful, scalable web/proxy server. Nginx (\"engine X\") is a "
                               "high-performance web"));
  EXPECT_EQ(count(shown, "nginx: small"), 1u) << session.screen();
}

TEST_F(Chat, FitsFortyColumns) {
  TmuxSession session = start({"chat", "--temp", "0"}, 40);
  ASSERT_TRUE(is_ready(session));
  EXPECT_THAT(flowing(session.screen()), HasSubstr("/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves."));
  ASSERT_TRUE(asks(session, "What is nginx?", "\nnginx:"));
  EXPECT_THAT(flowing(session.screen()),
              HasSubstr("What is nginx? nginx: small, powerful, scalable web/proxy server. Nginx (\"engine X\") is a "
                        "high-performance web and reverse proxy server"));
}

TEST_F(Chat, LongWarningsAreBrokenBetweenWords) {
  TmuxSession session = start({"chat", "--temp", "0", "-c", "9999", "--device", "cpu"}, 40);
  ASSERT_TRUE(is_ready(session));
  EXPECT_THAT(session.screen(), HasSubstr("carat: warning: -c 9999 is more than the\n"
                                          "4096 tokens the model was trained for;\n"
                                          "answers get worse beyond them\n"));
}

TEST_F(Chat, HasColoursUnlessTheyAreUnwanted) {
  TmuxSession coloured = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(coloured));
  ASSERT_TRUE(asks(coloured, "What is 12 + 34?", "\n12 + 34 = 46\n"));
  EXPECT_THAT(coloured.coloured_screen(), HasSubstr("\033[2m"));  // the dimmed status line
  TmuxSession plain = start({"chat", "--temp", "0"}, 80, "NO_COLOR=1");
  ASSERT_TRUE(is_ready(plain));
  ASSERT_TRUE(asks(plain, "What is 12 + 34?", "\n12 + 34 = 46\n"));
  EXPECT_THAT(plain.coloured_screen(), Not(HasSubstr("\033[")));
}

TEST_F(Chat, PipesAreLeftAloneOnATerminal) {
  TmuxSession session({"sh", "-c", "printf 'My name is Clara.\\nWhat is my name?\\n' | \"$1\" chat --temp 0 > \"$2\"",
                       "sh", CARAT_PROGRAM, folder_.file("out")});
  ASSERT_TRUE(session.ends_with(0));
  EXPECT_EQ(read_text(folder_.file("out")), "Nice to meet you, Clara!\nYour name is Clara.\n");
  EXPECT_THAT(session.screen(), Not(HasSubstr("> ")));  // no prompt for nobody
}

class Editing : public Chat {
 protected:
  void SetUp() override {
    Chat::SetUp();
#ifndef CARAT_HAVE_LIBEDIT
    GTEST_SKIP() << "skipped: built without libedit";
#endif
  }
};

TEST_F(Editing, UpBringsBackWhatWasTypedAlsoInTheNextSession) {
  {
    TmuxSession session = start({"chat", "--temp", "0"});
    ASSERT_TRUE(is_ready(session));
    ASSERT_TRUE(asks(session, "What is 12 + 34?", "\n12 + 34 = 46\n"));
    ASSERT_TRUE(asks(session, "My name is Clara.", "\nNice to meet you, Clara!\n"));
    session.send_key("Up");
    ASSERT_TRUE(session.wait_until([](const std::string& shown) { return shown.ends_with("\n> My name is Clara."); },
                                   "the last line again"));
    session.send_key("Up");
    ASSERT_TRUE(session.wait_until([](const std::string& shown) { return shown.ends_with("\n> What is 12 + 34?"); },
                                   "the line before it"));
    session.send_key("Enter");
    ASSERT_TRUE(answers(session, "> What is 12 + 34?", "\n12 + 34 = 46\n"));
    session.send_key("C-d");
    ASSERT_TRUE(session.ends_with(0));
  }
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  session.send_key("Up");
  EXPECT_TRUE(session.wait_until([](const std::string& shown) { return shown.ends_with("\n> What is 12 + 34?"); },
                                 "the last line of the session before"));
}

TEST_F(Editing, TabCompletesCommands) {
  TmuxSession session = start({"chat", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  session.send_text("/cl");
  session.send_key("Tab");
  ASSERT_TRUE(session.wait_for("\n> /clear"));
  session.send_key("Enter");
  ASSERT_TRUE(session.wait_for("The conversation is cleared.\n>"));
}

class RunInATerminal : public Chat {};

TEST_F(RunInATerminal, AnswersLineAfterLine) {
  TmuxSession session = start({"run", "--temp", "0"});
  ASSERT_TRUE(is_ready(session));
  ASSERT_TRUE(asks(session, "My name is Clara.", "\nNice to meet you, Clara!\n"));
  ASSERT_TRUE(asks(session, "What is my name?", "\nYour name is Clara.\n"));
  session.send_key("C-d");
  EXPECT_TRUE(session.ends_with(0));
}

TEST_F(RunInATerminal, CtrlCEndsASingleAnswer) {
  TmuxSession session =
      start({"run", "--device", "reference", "--ignore-eos", "--no-loop-guard", "--temp", "0", "-p", "What is nginx?"});
  ASSERT_TRUE(session.wait_for("nginx: small"));
  session.send_key("C-c");
  EXPECT_TRUE(session.ends_with(130));
}

TEST_F(Terminal, ABatchShowsHowLongItTakes) {
  const TemporaryDirectory folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"nginx","max_tokens":40,)"
             R"("ignore_eos":true}})"
             "\n";
  }
  write_text(folder.file("in.jsonl"), lines);
  TmuxSession session({CARAT_PROGRAM, "batch", folder.file("in.jsonl"), folder.file("out.jsonl"), "--device", "cpu",
                       "-t", "1", "-c", "128", "-np", "4"},
                      {100, 10, {}});
  EXPECT_TRUE(session.wait_for(" s left"));
  EXPECT_THAT(session.screen(),
              testing::ContainsRegex("[0-9]+ of 200 lines · [0-9.]+ lines/s · [0-9,]+ t/s · [0-9]+ s left"));
  session.send_key("C-c");
  EXPECT_TRUE(session.ends_with(130));
  EXPECT_THAT(flowing(session.transcript()), HasSubstr("of 200 lines; the same command goes on from there"));
}

}  // namespace
}  // namespace carat::test
