#include "batch/batch_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "support/random.h"

namespace carat::batch {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json good() {
  return {{"custom_id", "a"},
          {"method", "POST"},
          {"url", "/v1/chat/completions"},
          {"body", {{"messages", {{{"role", "user"}, {"content", "hi \u00e9\n"}}}}, {"temperature", 0.5}}}};
}

LineProblem problem_of(const std::string& text) {
  BatchLine line;
  LineProblem problem;
  EXPECT_FALSE(read_line(text, line, problem)) << text;
  return problem;
}

TEST(BatchLine, AGoodLineIsReadWhole) {
  for (const char* url : {"/v1/chat/completions", "/v1/completions", "/v1/responses"}) {
    json text = good();
    text["url"] = url;
    text["body"]["stream"] = false;
    BatchLine line;
    LineProblem problem;
    ASSERT_TRUE(read_line(text.dump(), line, problem)) << problem.message;
    EXPECT_EQ(line.custom_id, "a");
    EXPECT_EQ(line.url, url);
    EXPECT_EQ(json::parse(line.body), text["body"]);
  }
}

TEST(BatchLine, WhatIsWrongIsSaidWithTheLinesOwnId) {
  const auto changed = [](const char* field, const json& value) {
    json text = good();
    if (value.is_discarded()) {
      text.erase(field);
    } else {
      text[field] = value;
    }
    return text.dump();
  };
  const json absent = json(json::value_t::discarded);
  struct Case {
    std::string text;
    const char *custom_id, *code, *message;
  };
  for (const Case& wrong : std::initializer_list<Case>{
           {"{\"custom_id\":", "", "invalid_json", "the body"},
           {"[1]", "", "invalid_request", "JSON object"},
           {changed("custom_id", absent), "", "invalid_request", "custom_id is required"},
           {changed("custom_id", 3), "", "invalid_request", "custom_id must be a string"},
           {changed("method", "GET"), "a", "invalid_method", "GET"},
           {changed("url", "/v1/embeddings"), "a", "invalid_url", "/v1/responses"},
           {changed("url", absent), "a", "invalid_request", "url is required"},
           {changed("body", absent), "a", "invalid_request", "body is required"},
           {changed("body", "hi"), "a", "invalid_request", "body must be"},
           {changed("body", {{"stream", true}}), "a", "invalid_request", "body.stream"},
       }) {
    const LineProblem problem = problem_of(wrong.text);
    EXPECT_EQ(problem.custom_id, wrong.custom_id) << wrong.text;
    EXPECT_EQ(problem.code, wrong.code) << wrong.text;
    EXPECT_THAT(problem.message, HasSubstr(wrong.message)) << wrong.text;
  }
}

TEST(BatchLine, AnswersAndErrorsHaveTheShapesOfOpenAisFiles) {
  EXPECT_EQ(json::parse(answered_line(17, "a \"b\"", 200, R"({"object":"chat.completion"})")),
            (json{{"id", "batch_req_17"},
                  {"custom_id", "a \"b\""},
                  {"response",
                   {{"status_code", 200}, {"request_id", "batch_req_17"}, {"body", {{"object", "chat.completion"}}}}},
                  {"error", nullptr}}));
  EXPECT_EQ(json::parse(refused_line(3, {.custom_id = "x", .code = "invalid_url", .message = "no"})),
            (json{{"id", "batch_req_3"},
                  {"custom_id", "x"},
                  {"response", nullptr},
                  {"error", {{"code", "invalid_url"}, {"message", "no"}}}}));
}

// Whatever stands in a line, what is written of it is one line of JSON.
TEST(BatchLine, NoLineBreaksTheOutput) {
  const std::string line = good().dump();
  const std::string pieces[] = {"\"",   "\\u0000", "\\ud800", "\xff", "\xc3", "{", "}", "\r", std::string(1, '\0'),
                                "null", "1e999",   ","};
  test::Random random(3);
  int good_lines = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = line;
    for (uint64_t changes = random.below(3); changes > 0; --changes) {
      const size_t at = random.below(text.size());
      text.replace(at, random.below(3), pieces[random.below(std::size(pieces))]);
    }
    BatchLine read;
    LineProblem problem;
    const bool is_good = read_line(text, read, problem);
    good_lines += is_good ? 1 : 0;
    EXPECT_NE(is_good, !problem.message.empty());
    const std::string out = is_good ? answered_line(1, read.custom_id, 200, read.body) : refused_line(1, problem);
    EXPECT_EQ(out.find('\n'), std::string::npos);
    EXPECT_TRUE(json::accept(out)) << text << "\n" << out;
  }
  EXPECT_GT(good_lines, 5000);
}

}  // namespace
}  // namespace carat::batch
