#include "serve/stream_events.h"

#include <gtest/gtest.h>

namespace carat::serve_bench {
namespace {

TEST(ReadChunk, FindsTextOfEveryKind) {
  EXPECT_TRUE(read_chunk(R"({"choices":[{"text":"a"}]})").has_text);
  EXPECT_TRUE(read_chunk(R"({"choices": [ {"delta": {"content": "a"}} ]})").has_text);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"delta":{"reasoning":"a"}}]})").has_text);
  EXPECT_TRUE(
      read_chunk(R"({"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]})").has_text);
  EXPECT_FALSE(read_chunk(R"({"choices":[{"delta":{"content":""}}]})").has_text);
  EXPECT_FALSE(read_chunk(R"({"choices":[{"delta":{"content":null,"tool_calls":[]}}]})").has_text);
  EXPECT_FALSE(read_chunk(R"({"choices":[]})").is_of_answer);
  EXPECT_FALSE(read_chunk(R"({"choices":[{"type":"text","delta":{}}]})").has_text) << "a value is not a name";
}

TEST(ReadChunk, IsNotDeceivedByWhatTheModelSays) {
  const ChunkFacts facts = read_chunk(
      R"({"choices":[{"delta":{"content":"\"usage\":{\"finish_reason\":\"stop\",\"error\":{"},"finish_reason":null}]})");
  EXPECT_TRUE(facts.has_text);
  EXPECT_FALSE(facts.has_usage);
  EXPECT_FALSE(facts.is_last);
  EXPECT_FALSE(facts.has_error);
  EXPECT_EQ(facts.answer, R"(\"usage\":{\"finish_reason\":\"stop\",\"error\":{)");
}

TEST(ReadChunk, LogprobsBesideTheTextAreNotTheText) {
  const ChunkFacts facts = read_chunk(
      R"({"choices":[{"logprobs":{"content":[{"token":"x"}]},"delta":{"content":"x\\"},"finish_reason":"stop"}]})");
  EXPECT_EQ(facts.answer, "x\\\\");
  EXPECT_TRUE(facts.is_last);
}

TEST(ReadChunk, SeesErrorsAndUsage) {
  EXPECT_TRUE(read_chunk(R"({"error":{"message":"x"}})").has_error);
  EXPECT_TRUE(read_chunk(R"({"error":"x"})").has_error);
  EXPECT_FALSE(read_chunk(R"({"choices":[],"error":null,"usage":null})").has_error);
  EXPECT_FALSE(read_chunk(R"({"choices":[],"usage":null})").has_usage);
  EXPECT_TRUE(read_chunk(R"({"choices":[],"usage":{"prompt_tokens":3}})").has_usage);
}

TEST(ReadUsage, WhatIsMissingIsZero) {
  EXPECT_FALSE(read_usage("not json").has_value());
  EXPECT_FALSE(read_usage(R"({"usage":3})").has_value());
  const auto usage =
      read_usage(R"({"usage":{"prompt_tokens":12,"completion_tokens":-1,"prompt_tokens_details":null}})");
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->prompt_tokens, 12u);
  EXPECT_EQ(usage->completion_tokens, 0u);
  EXPECT_EQ(usage->cached_tokens, 0u);
}

TEST(ErrorMessage, IsFoundOrTheBeginningOfTheText) {
  EXPECT_EQ(error_message(R"({"error":{"message":"m"}})"), "m");
  EXPECT_EQ(error_message(R"({"error":"e"})"), "e");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_EQ(error_message(std::string(5000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace carat::serve_bench
