#include "cli/shell/tool_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "support/files.h"

namespace carat::cli {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

const text::ToolCall kCall = {"call_1", "get_weather", R"({"city":"Paris"})"};

class ToolDeskTest : public testing::Test {
 protected:
  ToolDeskTest() {
    test::write_text(program, "#!/bin/sh\necho run >> \"" + log + "\"\ncat\n");
    chmod(program.c_str(), 0700);
  }

  ToolDesk desk(std::vector<std::optional<std::string>> lines, bool without_asking = false, bool has_command = true) {
    ToolDesk::Options options;
    if (has_command) options.command = {program};
    options.without_asking = without_asking;
    answers = std::move(lines);
    return ToolDesk(options, [this](std::string_view question) -> std::optional<std::string> {
      questions.emplace_back(question);
      if (answers.empty()) return std::nullopt;
      const std::optional<std::string> line = answers.front();
      answers.erase(answers.begin());
      return line;
    });
  }
  size_t runs() const { return std::filesystem::exists(log) ? test::read_text(log).size() / 4 : 0; }

  TemporaryDirectory folder;
  std::string program = folder.file("tool");
  std::string log = folder.file("log");
  std::vector<std::string> questions;
  std::vector<std::optional<std::string>> answers;
};

TEST_F(ToolDeskTest, RunsAfterAYesAndShowsWhatItWouldDo) {
  const auto results = desk({"y"}).carry_out({kCall});
  ASSERT_TRUE(results.has_value());
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_THAT(questions.front(), HasSubstr(program));
  EXPECT_THAT(questions.front(), HasSubstr("get_weather"));
  EXPECT_THAT(questions.front(), HasSubstr(R"({"city":"Paris"})"));
  EXPECT_EQ(runs(), 1u);
  EXPECT_EQ(results->front().role, text::Role::kTool);
  EXPECT_EQ(results->front().tool_call_id, "call_1");
  EXPECT_THAT(results->front().result_json, HasSubstr("Paris"));
}

TEST_F(ToolDeskTest, NothingRunsWithoutAYes) {
  for (const char* answer : {"n", "", "no", "yup?", "Never"}) {
    const auto results = desk({answer}).carry_out({kCall});
    ASSERT_TRUE(results.has_value());
    EXPECT_THAT(results->front().result_json, HasSubstr("the user declined the call"));
  }
  const auto results = desk({}).carry_out({kCall});
  EXPECT_THAT(results->front().result_json, HasSubstr("nobody could be asked"));
  EXPECT_EQ(runs(), 0u);
}

TEST_F(ToolDeskTest, AlwaysMeansNoMoreQuestions) {
  ToolDesk asked = desk({"Always"});
  asked.carry_out({kCall, kCall});
  asked.carry_out({kCall});
  EXPECT_EQ(questions.size(), 1u);
  EXPECT_EQ(runs(), 3u);
  questions.clear();
  desk({}, true).carry_out({kCall});
  EXPECT_TRUE(questions.empty());
  EXPECT_EQ(runs(), 4u);
}

TEST_F(ToolDeskTest, AQuestionShowsNoEscapeSequences) {
  const text::ToolCall hostile = {"call_1", "get\033[2Jweather", "{\"city\":\"\033]52;c;aGk=\007\"}"};
  desk({"n"}).carry_out({hostile});
  EXPECT_EQ(questions.front().find('\033'), std::string::npos);
  EXPECT_EQ(questions.front().find('\007'), std::string::npos);
}

TEST_F(ToolDeskTest, WithoutAProgramThePersonIsTheTool) {
  const auto results = desk({"{\"temperature\": 21}"}, false, false).carry_out({kCall});
  ASSERT_TRUE(results.has_value());
  EXPECT_THAT(results->front().result_json, HasSubstr("21"));
  EXPECT_EQ(questions.front(), "result of get_weather> ");
  EXPECT_FALSE(desk({""}, false, false).carry_out({kCall}).has_value());
  EXPECT_FALSE(desk({}, false, false).carry_out({kCall}).has_value());
}

}  // namespace
}  // namespace carat::cli
