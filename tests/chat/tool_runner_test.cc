#include "chat/tool_runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "chat/captured_process.h"
#include "support/files.h"

namespace carat::chat {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(SplitCommand, SplitsAsAShellWould) {
  EXPECT_THAT(split_command("python3 tools.py"), ElementsAre("python3", "tools.py"));
  EXPECT_THAT(split_command("  a\t b\n"), ElementsAre("a", "b"));
  EXPECT_THAT(split_command(R"('a b' "c d" e\ f)"), ElementsAre("a b", "c d", "e f"));
  EXPECT_THAT(split_command(R"(x'y'"z"\w)"), ElementsAre("xyzw"));
  EXPECT_THAT(split_command(R"(run '' "")"), ElementsAre("run", "", ""));
  EXPECT_THAT(split_command(R"('a\b' "a\b" "a\"b" "a\\b" "\$x" a\\b)"),
              ElementsAre("a\\b", "a\\b", "a\"b", "a\\b", "$x", "a\\b"));
  EXPECT_THAT(split_command("sh -c 'echo \"$1\" | tr a b' -"), ElementsAre("sh", "-c", "echo \"$1\" | tr a b", "-"));
}

TEST(SplitCommand, ExpandsNothing) {
  EXPECT_THAT(split_command("a $HOME * ~ `b` $(c) ; | > &&"),
              ElementsAre("a", "$HOME", "*", "~", "`b`", "$(c)", ";", "|", ">", "&&"));
}

void expect_refused(std::string_view command, const std::string& message) {
  try {
    split_command(command);
    ADD_FAILURE() << "accepted: " << command;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), StartsWith("--tool-exec: "));
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(SplitCommand, RefusesWhatHasNoEnd) {
  expect_refused("", "empty");
  expect_refused(" \t", "empty");
  expect_refused("a 'b", "' is never closed");
  expect_refused("a \"b", "\" is never closed");
  expect_refused("a \"b\\\"", "\" is never closed");
  expect_refused("a \\", "nothing follows");
  expect_refused(std::string_view("a\0b", 3), "NUL");
}

class ToolRunner : public testing::Test {
 protected:
  // A program of the given shell text; the test's folder is its $DIR.
  std::vector<std::string> script(const std::string& text) const {
    const std::string path = folder_.file("tool");
    test::write_text(path, "#!/bin/sh\nDIR='" + folder_.path().string() + "'\n" + text + "\n");
    ::chmod(path.c_str(), 0700);
    return {path};
  }

  static text::ToolCall call(const std::string& name = "get_weather", const std::string& arguments = "{}") {
    return {"call_1", name, arguments};
  }

  ToolOutcome run(const std::string& text, const text::ToolCall& wanted = call(), const ToolLimits& limits = {}) const {
    return run_tool(script(text), wanted, limits, nullptr);
  }

  // Runs it and cancels when it has made `file`.
  ToolOutcome run_until(const std::string& file, const std::string& text) const {
    std::atomic<bool> cancelled{false};
    const std::vector<std::string> command = script(text);
    std::thread user([&] {
      while (!std::filesystem::exists(folder_.file(file))) std::this_thread::sleep_for(milliseconds(5));
      cancelled.store(true);
    });
    const ToolOutcome outcome = run_tool(command, call(), {}, &cancelled);
    user.join();
    return outcome;
  }

  // Whether the process whose number a script wrote to `file` is gone, or goes within some seconds.
  bool ends(const std::string& file) const {
    const pid_t process = std::stoi(test::read_text(folder_.file(file)));
    for (int i = 0; i < 1000; ++i) {
      if (::kill(process, 0) != 0 && errno == ESRCH) return true;
      const std::string state_path = "/proc/" + std::to_string(process) + "/stat";
      std::error_code ignored;
      if (!std::filesystem::exists(state_path, ignored)) return true;
      // One that was handed to a parent which reaps late is dead all the same.
      std::ifstream stat(state_path);
      const std::string content{std::istreambuf_iterator<char>(stat), {}};
      if (content.find(") Z ") != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  test::TemporaryDirectory folder_;
};

TEST_F(ToolRunner, GivesNameAndArguments) {
  std::vector<std::string> command = script(R"(printf '[%s]' "$@"; cat)");
  command.push_back("two words");
  const ToolOutcome outcome =
      run_tool(command, call("get_weather", R"({"city": "Paris", "days": 12345678901234567890123})"), {}, nullptr);
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "[two words][get_weather]{\"city\": \"Paris\", \"days\": 12345678901234567890123}\n");
  EXPECT_EQ(outcome.problem, "");
  EXPECT_GT(outcome.seconds, 0.0);
}

TEST_F(ToolRunner, ArgumentsAreOneLine) {
  EXPECT_EQ(run("cat", call("f", "{\n  \"a\": \"x\\ny\",\r\n  \"b\": 1\n}")).output,
            "{   \"a\": \"x\\ny\",    \"b\": 1 }\n");
  EXPECT_EQ(run("cat", call("f", "")).output, "{}\n");
}

TEST_F(ToolRunner, TakesArgumentsAndOutputLongerThanAPipe) {
  const std::string longer(300 << 10, 'x');
  ToolLimits limits;
  limits.output_bytes = 1 << 20;
  const ToolOutcome outcome = run("cat", call("f", "{\"text\": \"" + longer + "\"}"), limits);
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "{\"text\": \"" + longer + "\"}\n");
}

TEST_F(ToolRunner, NothingIsExpanded) {
  const std::string hostile = "a$(touch $DIR/x); touch x `touch x` | x > x\n& touch 'x'";
  const std::string arguments = "{\"a\": \"$(touch x)\"}";
  const ToolOutcome outcome = run(R"(cd "$DIR"; printf '%s' "$1"; cat)", call(hostile, arguments));
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, hostile + arguments + "\n");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("x")));
  EXPECT_FALSE(std::filesystem::exists("x"));
}

TEST_F(ToolRunner, ANameIsNeverAFlagNorAProgram) {
  const std::string touched = R"(touch "$DIR/ran")";
  EXPECT_THAT(run(touched, call("--version")).problem, HasSubstr("would take it for a flag"));
  EXPECT_THAT(run(touched, call("-")).problem, HasSubstr("would take it for a flag"));
  EXPECT_THAT(run(touched, call("")).problem, HasSubstr("names no tool"));
  EXPECT_THAT(run(touched, call(std::string("a\0b", 3))).problem, HasSubstr("NUL"));
  EXPECT_THAT(run(touched, call("-\033[31m")).problem, Not(HasSubstr("\033")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("ran")));
  EXPECT_THROW(run_tool({}, call("true"), {}, nullptr), std::logic_error);
}

TEST_F(ToolRunner, ArgumentsMustBeAnObject) {
  for (const char* arguments : {"[1]", "3", "{\"a\": ", "{} {}", "nonsense"}) {
    EXPECT_THAT(run("cat", call("f", arguments)).problem, HasSubstr("no JSON object")) << arguments;
  }
}

TEST_F(ToolRunner, SaysWhatCannotBeStarted) {
  const std::vector<std::string> missing = {folder_.file("missing")};
  const ToolOutcome outcome = run_tool(missing, call(), {}, nullptr);
  EXPECT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.problem, StartsWith("cannot start \"" + missing[0] + "\": No such file"));
  const std::vector<std::string> unknown = {"no-program-has-this-name"};
  EXPECT_THAT(run_tool(unknown, call(), {}, nullptr).problem, HasSubstr("No such file"));
  const std::vector<std::string> plain_file = {folder_.file("file")};
  test::write_text(plain_file[0], "echo no\n");
  EXPECT_THAT(run_tool(plain_file, call(), {}, nullptr).problem, HasSubstr("Permission denied"));
  ::chmod(plain_file[0].c_str(), 0700);  // without #!: not given to a shell
  EXPECT_THAT(run_tool(plain_file, call(), {}, nullptr).problem, HasSubstr("Exec format error"));
}

TEST_F(ToolRunner, FindsProgramsInThePath) {
  EXPECT_EQ(run_tool(split_command("echo -n"), call("f"), {}, nullptr).output, "f");
}

TEST_F(ToolRunner, ReportsTheExitStatusWithWhatWasSaid) {
  ToolOutcome outcome = run("echo half; echo 'no such city' >&2; echo 'try Paris' >&2; exit 3");
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.problem, "exit status 3: no such city\ntry Paris");
  EXPECT_EQ(outcome.output, "half\n");
  EXPECT_EQ(run("exit 4").problem, "exit status 4");
  EXPECT_EQ(run("echo on stdout; exit 5").problem, "exit status 5: on stdout");
  EXPECT_EQ(run("kill -9 $$").problem, "killed by signal 9 (Killed)");
}

TEST_F(ToolRunner, WhatAToolSaysCannotDriveTheTerminal) {
  EXPECT_EQ(run(R"(printf '\033[31mred\033]0;title\007\302\233\r\n\377' >&2; exit 1)").problem,
            "exit status 1: [31mred]0;title\n\xEF\xBF\xBD");
  const ToolOutcome verbose = run("for i in 1 2 3 4 5 6 7; do echo line $i; done >&2; exit 1");
  EXPECT_THAT(verbose.problem, HasSubstr("line 5"));
  EXPECT_THAT(verbose.problem, Not(HasSubstr("line 6")));
  const ToolOutcome wide = run("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1");
  EXPECT_LT(wide.problem.size(), 500u);
  EXPECT_THAT(wide.problem, testing::EndsWith("xxx..."));
}

TEST_F(ToolRunner, OutputIsUtf8) {
  const ToolOutcome outcome = run(R"(printf 'gr\303\274n \377 \303')");
  EXPECT_TRUE(outcome.ok);
  EXPECT_EQ(outcome.output, "grün \xEF\xBF\xBD \xEF\xBF\xBD");
}

TEST_F(ToolRunner, TimesOut) {
  ToolLimits limits;
  limits.timeout = milliseconds(200);
  const ToolOutcome outcome = run("echo begun; sleep 60", call(), limits);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.problem, "timed out after 200 ms");
  EXPECT_GE(outcome.seconds, 0.2);
  EXPECT_LT(outcome.seconds, 30.0);
}

TEST_F(ToolRunner, IsCancelled) {
  const ToolOutcome outcome =
      run_until("self", "sleep 60 & echo $$ > \"$DIR/new\"; mv \"$DIR/new\" \"$DIR/self\"; wait");
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.problem, "interrupted");
  EXPECT_LT(outcome.seconds, 30.0);
  EXPECT_TRUE(ends("self"));
}

TEST_F(ToolRunner, EndsProcessesThatIgnoreTheRequest) {
  const ToolOutcome outcome = run_until("child", R"(
    trap '' TERM
    echo $$ > "$DIR/self"
    sleep 60 &
    echo $! > "$DIR/new"
    mv "$DIR/new" "$DIR/child"
    wait)");
  EXPECT_EQ(outcome.problem, "interrupted");
  EXPECT_TRUE(ends("self"));
  EXPECT_TRUE(ends("child"));
}

TEST_F(ToolRunner, EndsOneThatHasStopped) {
  const ToolOutcome outcome = run_until("self", R"(echo $$ > "$DIR/new"; mv "$DIR/new" "$DIR/self"; kill -STOP $$)");
  EXPECT_EQ(outcome.problem, "interrupted");
  EXPECT_TRUE(ends("self"));
}

TEST_F(ToolRunner, LimitsTheOutput) {
  ToolLimits limits;
  limits.output_bytes = 4096;
  const ToolOutcome endless = run("echo $$ > \"$DIR/self\"; while :; do echo yes; done", call(), limits);
  EXPECT_FALSE(endless.ok);
  EXPECT_EQ(endless.problem, "its output is longer than 4 KiB");
  EXPECT_EQ(endless.output.size(), 4096u);
  EXPECT_TRUE(ends("self"));
  EXPECT_TRUE(run("head -c 4096 /dev/zero | tr '\\0' x", call(), limits).ok);
  EXPECT_FALSE(run("head -c 4097 /dev/zero | tr '\\0' x", call(), limits).ok);
}

TEST_F(ToolRunner, ToolsNeedNotReadTheirInput) {
  const std::string longer(200 << 10, 'x');
  const ToolOutcome outcome = run("exec 0<&-; echo done", call("f", "{\"text\": \"" + longer + "\"}"));
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "done\n");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
}

TEST_F(ToolRunner, ClosedOutputIsNotTheEnd) {
  const ToolOutcome outcome = run("echo said; exec >&- 2>&-; sleep 0.2; touch \"$DIR/finished\"");
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "said\n");
  EXPECT_TRUE(std::filesystem::exists(folder_.file("finished")));
}

TEST_F(ToolRunner, DoesNotWaitForWhatRunsOn) {
  // The process in the background has the pipes open and outlives the tool.
  const ToolOutcome outcome =
      run("(while :; do echo noise >&2; sleep 0.01; done) & echo $! > \"$DIR/child\"; echo answer");
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "answer\n");
  EXPECT_LT(outcome.seconds, 20.0);
  ::kill(std::stoi(test::read_text(folder_.file("child"))), SIGKILL);
}

TEST_F(ToolRunner, WholeOutputOfAQuickTool) {
  // Its end is noticed before its output is read, or after: nothing may be lost.
  for (int i = 0; i < 50; ++i) {
    const std::vector<std::string> command = split_command("printf %s");
    ASSERT_EQ(run_tool(command, call("answer"), {}, nullptr).output, "answer");
  }
}

TEST_F(ToolRunner, LeavesNoZombie) {
  EXPECT_TRUE(run("exit 0").ok);
  ToolLimits limits;
  limits.timeout = milliseconds(100);
  EXPECT_FALSE(run("sleep 60", call(), limits).ok);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(ToolRunner, InheritsNothingButItsStreams) {
  const int without_close_on_exec = ::open("/dev/null", O_RDONLY);  // NOLINT: that is the point
  ASSERT_GT(without_close_on_exec, 2);
  // The shell may hold its script open, at 10 or above, so what is opened here must be lower to be told apart.
  const ToolOutcome outcome = run("for i in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && echo \"open: $i\"; done; true");
  ::close(without_close_on_exec);
  EXPECT_TRUE(outcome.ok) << outcome.problem;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(run("(: < /dev/tty) 2>/dev/null || echo no terminal").output, "no terminal\n");
}

TEST_F(ToolRunner, WorksWhenItsOwnStreamsAreClosed) {
  const std::vector<std::string> command = script("cat; echo error >&2; exit 2");
  const int saved = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  ::close(STDIN_FILENO);  // the next pipe gets number 0
  const ToolOutcome outcome = run_tool(command, call("f", "{\"a\":1}"), {}, nullptr);
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  EXPECT_EQ(outcome.output, "{\"a\":1}\n");
  EXPECT_EQ(outcome.problem, "exit status 2: error");
}

TEST(CapturedProcess, IsEndedWithItsOwner) {
  const std::vector<std::string> command = {"sleep", "60"};
  { const CapturedProcess process(command, ""); }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

class ToolMessage : public testing::Test {
 protected:
  static text::Message of_output(const std::string& output) {
    return tool_message({"call_7", "f", "{}"}, {true, output, "", 0.1});
  }
};

TEST_F(ToolMessage, NamesItsCall) {
  const text::Message message = of_output("21");
  EXPECT_EQ(message.role, text::Role::kTool);
  EXPECT_EQ(message.tool_call_id, "call_7");
  EXPECT_EQ(message.tool_name, "f");
}

TEST_F(ToolMessage, JsonIsAValue) {
  for (const char* json : {"{\"a\": [1, 2]}", "[]", "21", "-0.5", "true", "null", "12345678901234567890123"}) {
    EXPECT_EQ(of_output(json + std::string("\n")).result_json, json);
    EXPECT_TRUE(of_output(json).content.empty());
  }
}

TEST_F(ToolMessage, OtherTextIsAString) {
  const std::string too_deep = std::string(100, '[') + std::string(100, ']');
  for (const std::string& text : {std::string("sunny, 21 degrees"), std::string("two\nlines"), std::string("{half"),
                                  std::string("<turn|>"), std::string(), too_deep}) {
    EXPECT_EQ(of_output(text + "\r\n\n").content.joined(), text);
    EXPECT_EQ(of_output(text).result_json, "");
  }
  EXPECT_EQ(of_output("\"a JSON string\"").content.joined(), "a JSON string");
}

TEST_F(ToolMessage, AFailureIsAnError) {
  const text::Message message = tool_message({"", "f", "{}"}, {false, "{\"half\": 1}", "exit status 3: \"x\"\ny", 0.1});
  EXPECT_EQ(nlohmann::json::parse(message.result_json), (nlohmann::json{{"error", "exit status 3: \"x\"\ny"}}));
}

}  // namespace
}  // namespace carat::chat
