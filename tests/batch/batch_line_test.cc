#include "batch/batch_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace carat::batch
