// What `carat chat` and `carat run` do with thoughts, tools, grammars and endings, as scripts see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "chat/weather_tool.h"
#include "cli/carat_process.h"

namespace carat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string script(const TemporaryDirectory& folder, const std::string& body) {
  const std::string path = folder.file("tool");
  write_text(path, "#!/bin/sh\n" + body);
  chmod(path.c_str(), 0700);
  return path;
}

class ToolsTest : public testing::Test {
 protected:
  ToolsTest() { write_text(tools, kWeatherTool); }
  ProcessResult ask(std::vector<std::string> more, const std::string& input = "") const {
    std::vector<std::string> arguments = {"run",     "--temp", "0", "-p", "What is the weather in Paris?",
                                          "--tools", tools};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_carat(arguments, input);
  }
  TemporaryDirectory folder;
  std::string tools = folder.file("tools.json");
};

TEST_F(ToolsTest, APendingCallIsJsonAndAStatus) {
  const ProcessResult result = ask({});
  EXPECT_EQ(result.exit_code, 14) << result.err;
  const auto call = nlohmann::json::parse(result.out);
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_EQ(call["arguments"], nlohmann::json({{"city", "Paris"}}));
}

TEST_F(ToolsTest, AProgramCarriesTheCallOutAndTheModelGoesOn) {
  const std::string program = script(folder,
                                     "echo \"$1\" > \"$(dirname \"$0\")/name\"; cat > \"$(dirname \"$0\")/input\"\n"
                                     "echo '{\"temperature\": 21, \"condition\": \"sunny\"}'\n");
  const ProcessResult result = ask({"--tool-exec", program, "--yes"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "In Paris it is sunny with 21 degrees.\n");
  EXPECT_EQ(read_text(folder.file("name")), "get_weather\n");
  EXPECT_EQ(read_text(folder.file("input")), "{\"city\":\"Paris\"}\n");
}

TEST_F(ToolsTest, NothingRunsWithoutPermission) {
  const std::string program = script(folder, "touch \"$(dirname \"$0\")/ran\"\n");
  const ProcessResult result = ask({"--tool-exec", program}, "y\n");  // a pipe is nobody's yes
  EXPECT_THAT(result.err, HasSubstr("calls are only carried out after a yes; --yes goes without"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("ran")));
}

TEST_F(ToolsTest, AFailureIsSaidAndToldToTheModel) {
  const ProcessResult result = ask({"--tool-exec", script(folder, "echo broken >&2; exit 3\n"), "--yes"});
  EXPECT_THAT(result.err, HasSubstr("status 3"));
  EXPECT_THAT(result.err, HasSubstr("broken"));
}

TEST(ChatCommand, FlagsThatCannotBe) {
  EXPECT_THAT(run_carat({"run", "-p", "x", "--tool-exec", "true"}).err, HasSubstr("give --tools FILE"));
  EXPECT_THAT(run_carat({"chat", "--overflow", "cut"}).err, HasSubstr("--overflow cut: known are error"));
  EXPECT_THAT(run_carat({"chat", "--show-thinking", "all"}).err, HasSubstr("--show-thinking"));
  EXPECT_THAT(run_carat({"chat", "--chat-template", "mine"}).err, HasSubstr("--chat-template mine: known are"));
  EXPECT_THAT(run_carat({"chat", "--color", "blue"}).err, HasSubstr("--color"));
  EXPECT_THAT(run_carat({"run", "--raw", "--think", "-p", "x"}).err, HasSubstr("need the chat format"));
  EXPECT_THAT(run_carat({"run", "-p", "x", "--grammar", "missing.gbnf"}).err, HasSubstr("missing.gbnf"));
}

TEST(ChatCommand, AnswersLinesFromAPipeAndNothingElse) {
  const ProcessResult result =
      run_carat({"chat", "--temp", "0"}, "My name is Clara.\n\n/think off\nWhat is my name?\n/nonsense\n");
  EXPECT_EQ(result.exit_code, 1);  // of the last line
  EXPECT_EQ(result.out, "Nice to meet you, Clara!\nYour name is Clara.\n");
  EXPECT_THAT(result.err, HasSubstr("there is no command /nonsense"));
}

TEST(ChatCommand, SeveralLinesBetweenQuotesAreOneMessage) {
  const ProcessResult result = run_carat({"chat", "--temp", "0"}, "\"\"\"My name\nis Clara.\"\"\"\nWhat is my name?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Your name is Clara.\n"));
}

TEST(ChatCommand, GoesOnWithAConversationFromAFile) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("talk.json");
  write_text(path, R"({"messages": [{"role": "user", "content": "My name is Clara."},
      {"role": "assistant", "content": "Nice to meet you, Clara!"}], "carat_page": {"version": 1}})");
  const ProcessResult result = run_carat({"chat", "--temp", "0", "--load", path}, "What is my name?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Your name is Clara.\n");
  const ProcessResult missing = run_carat({"chat", "--load", folder.file("missing.json")}, "Hello\n");
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("missing.json"));
}

TEST(RunCommand, ALineOfAScriptThatBeginsWithASlashIsALine) {
  const ProcessResult result = run_carat({"run", "--temp", "0", "-n", "4"}, "/exit\n");
  EXPECT_EQ(result.exit_code, 10) << result.err;
  EXPECT_GT(result.out.size(), 1u);
}

TEST(Endings, EachHasItsWordsAndItsStatus) {
  const auto end = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", "--temp", "0", "-p", "What is 456 + 378?"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_carat(arguments);
  };
  EXPECT_EQ(end({}).exit_code, 0);
  const ProcessResult cut = end({"-n", "3"});
  EXPECT_EQ(cut.exit_code, 10);
  EXPECT_THAT(cut.err, HasSubstr("the answer is cut off at the limit of 3 tokens (-n)"));
  const ProcessResult budget = end({"--think-budget", "4"});
  EXPECT_EQ(budget.exit_code, 11);
  EXPECT_THAT(budget.err, HasSubstr("the thoughts were ended at their budget of 4 tokens (--think-budget)"));
  EXPECT_THAT(budget.out, HasSubstr(" + 378 = "));
  const ProcessResult full = end({"-c", "26"});
  EXPECT_EQ(full.exit_code, 12);
  EXPECT_THAT(full.err, HasSubstr("the context of 26 tokens is full"));
  const ProcessResult loop = end({"--logit-bias", "5864+1000"});
  EXPECT_EQ(loop.exit_code, 13);
  EXPECT_THAT(loop.err, HasSubstr("stopped: the model repeats itself"));
  EXPECT_EQ(end({"--logit-bias", "5864+1000", "--no-loop-guard", "-n", "300"}).exit_code, 10);
}

TEST(Thinking, IsShownAsAskedAndNeverInTheAnswer) {
  for (const char* show : {"full", "summary", "none"}) {
    const ProcessResult result =
        run_carat({"run", "--think", "--temp", "0", "-p", "What is 456 + 378?", "--show-thinking", show});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "456 + 378 = 834\n");
    EXPECT_EQ(result.err.find("carry") != std::string::npos, std::string_view(show) == "full") << result.err;
  }
}

TEST(StructuredOutput, AGrammarIsObeyed) {
  const TemporaryDirectory folder;
  write_text(folder.file("answer.gbnf"), "root ::= \"The sum is \" [0-9]{1,6} \".\"");
  const ProcessResult result =
      run_carat({"run", "--temp", "0", "-p", "What is 12 + 34?", "--grammar", folder.file("answer.gbnf")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("^The sum is [0-9]+\\.\n$"));
  write_text(folder.file("broken.gbnf"), "root ::= [a-");
  const ProcessResult broken = run_carat({"run", "-p", "x", "--grammar", folder.file("broken.gbnf")});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("broken.gbnf"));
}

TEST(StructuredOutput, JsonIsValidWhateverTheQuestion) {
  const TemporaryDirectory folder;
  write_text(folder.file("schema.json"),
             R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
      "age": {"type": "integer", "minimum": 0, "maximum": 150}, "city": {"type": "string", "maxLength": 20}},
      "required": ["name", "age", "city"], "additionalProperties": false})");
  const auto ask = [&](const std::string& question, const std::string& temperature) {
    const ProcessResult result = run_carat(
        {"run", "--temp", temperature, "-s", "7", "-p", question, "--json-schema", folder.file("schema.json")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto omar = ask("Extract name, age and city as JSON: Omar is 31 years old and lives in Oslo.", "0");
  EXPECT_EQ(omar, nlohmann::json({{"name", "Omar"}, {"age", 31}, {"city", "Oslo"}}));
  const auto other = ask("What is nginx?", "1.5");
  EXPECT_TRUE(other["age"].is_number_integer());
  EXPECT_LE(other["age"], 150);
}

}  // namespace
}  // namespace carat::test
