// OpenAI's chat completions: what the events of an answer become.
#include "server/api/openai/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/api_error.h"

namespace carat::server {
namespace {

using nlohmann::json;
using text::Role;

const ServerFacts kFacts{.model_id = "demo", .fingerprint = "carat-1", .context = 4096};

std::string chat(const std::string& rest) {
  return R"({"messages":[{"role":"user","content":"Hi."}])" + (rest.empty() ? "" : "," + rest) + "}";
}

// The objects of a stream; "[DONE]" as a string.
std::vector<json> stream_of(const std::string& bytes) {
  std::vector<json> events;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t end = bytes.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = bytes.substr(at, end - at);
    EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
    const std::string data = event.substr(6);
    events.push_back(data == "[DONE]" ? json("[DONE]") : json::parse(data));
    at = end + 2;
  }
  return events;
}

std::string streamed(const GenerationRequest& request, const std::vector<Event>& events) {
  const auto reply = make_openai_chat_reply(request, kFacts, {.id = "chatcmpl-1", .created = 7.0});
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  return out;
}

json whole(const GenerationRequest& request, const std::vector<Event>& events) {
  const auto reply = make_openai_chat_reply(request, kFacts, {.id = "chatcmpl-1", .created = 7.0});
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  EXPECT_EQ(out, "");
  const Response response = reply->response();
  EXPECT_EQ(response.status, 200u);
  return json::parse(response.body);
}

TEST(OpenAiChatReply, AStreamInItsOrder) {
  GenerationRequest request =
      parse_openai_chat(chat(R"("stream":true,"stream_options":{"include_usage":true},"model":"m")"));
  const std::vector<json> events =
      stream_of(streamed(request, {Started{.prompt_tokens = 9, .cached_tokens = 4}, ThoughtText{0, "hm"},
                                   AnswerText{.text = "It is "}, AnswerText{.text = "x"}, ChoiceEnded{},
                                   Ended{{.prompt_tokens = 9, .cached_tokens = 4, .completion_tokens = 5}}}));
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"], json({{"reasoning_content", "hm"}}));
  EXPECT_EQ(events[2]["choices"][0]["delta"], json({{"content", "It is "}}));
  EXPECT_EQ(events[4]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[4]["choices"][0]["delta"], json::object());
  EXPECT_EQ(events[5]["choices"], json::array());
  EXPECT_EQ(events[5]["usage"]["prompt_tokens"], 9);
  EXPECT_EQ(events[5]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(events[6], "[DONE]");
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(events[i]["id"], "chatcmpl-1");
    EXPECT_EQ(events[i]["model"], "m");
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    if (i < 4) {
      EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null());
    }
  }
}

TEST(OpenAiChatReply, SaysWhatHadToBeReadAgainAndWhy) {
  const GenerationRequest request = parse_openai_chat(chat("\"model\":\"m\""));
  const Usage lost{.prompt_tokens = 90, .cached_tokens = 10, .lost_reason = "window", .lost_tokens = 70};
  const json answer = whole(request, {Started{}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{lost}});
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["carat_lost"], json({{"tokens", 70}, {"reason", "window"}}));
  const json other = whole(request, {Started{}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{}});
  EXPECT_FALSE(other["usage"]["prompt_tokens_details"].contains("carat_lost"));
}

TEST(OpenAiChatReply, UsageTravelsWithTheEndWhereNobodyAskedForIt) {
  const GenerationRequest request = parse_openai_chat(chat(R"("stream":true)"));
  const std::vector<json> events = stream_of(
      streamed(request, {Started{}, AnswerText{.text = "x"}, ChoiceEnded{.finish = Finish::kLength}, Ended{}}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(events[2].contains("usage"));
  EXPECT_EQ(events[3], "[DONE]");
}

TEST(OpenAiChatReply, CallsAreNumbered) {
  const GenerationRequest request = parse_openai_chat(chat(R"("stream":true)"));
  const std::vector<json> events = stream_of(
      streamed(request, {Started{}, CallMade{0, "call_a", "f", R"({"a":1})"}, CallMade{0, "call_b", "g", "{}"},
                         ChoiceEnded{.finish = Finish::kToolCalls}, Ended{}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
  EXPECT_EQ(events[2]["choices"][0]["delta"]["tool_calls"][0]["index"], 1);
  EXPECT_EQ(events[2]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"], "g");
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "tool_calls");
}

TEST(OpenAiChatReply, AStreamThatFailsEndsWithoutItsTerminator) {
  const GenerationRequest request = parse_openai_chat(chat(R"("stream":true)"));
  const std::string bytes = streamed(
      request, {Started{}, AnswerText{.text = "x"}, Failed{{.refusal = Refusal::kFailed, .message = "a pass failed"}}});
  EXPECT_EQ(bytes.find("[DONE]"), std::string::npos);
  EXPECT_EQ(stream_of(bytes).back()["error"]["message"], "a pass failed");
}

TEST(OpenAiChatReply, AWholeAnswer) {
  const GenerationRequest request = parse_openai_chat(chat(""));
  const json answer =
      whole(request, {Started{}, ThoughtText{0, "a"}, ThoughtText{0, "b"}, AnswerText{.text = "c"}, ChoiceEnded{},
                      Ended{{.prompt_tokens = 3, .cached_tokens = 1, .completion_tokens = 2, .thought_tokens = 2}}});
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "demo");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "c");
  EXPECT_EQ(answer["choices"][0]["message"]["reasoning_content"], "ab");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(answer["timings"]["prompt_n"], 2);
}

TEST(OpenAiChatReply, OnlyCallsMeansNullContent) {
  const GenerationRequest request = parse_openai_chat(chat(""));
  const json answer =
      whole(request, {Started{}, CallMade{0, "call_a", "f", "{}"}, ChoiceEnded{.finish = Finish::kToolCalls}, Ended{}});
  EXPECT_TRUE(answer["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0]["id"], "call_a");
}

TEST(OpenAiChatReply, ABadCallIsShownAsText) {
  const GenerationRequest request = parse_openai_chat(chat(""));
  const json answer = whole(request, {Started{}, BadCall{0, "call:f{", "cut off"}, ChoiceEnded{}, Ended{}});
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "call:f{");
  EXPECT_EQ(answer["choices"][0]["carat"]["bad_tool_call"]["problem"], "cut off");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST(OpenAiChatReply, LogprobsHaveExactBytes) {
  const GenerationRequest request = parse_openai_chat(chat(R"("logprobs":true,"top_logprobs":1)"));
  ChosenLogprob chosen;
  chosen.token = 5;
  chosen.bytes = "\xC3";
  chosen.logprob = -0.5;
  chosen.top.push_back({6, " L", -4.5});
  const json answer =
      whole(request, {Started{}, AnswerText{.text = "x", .logprobs = {chosen}}, ChoiceEnded{}, Ended{}});
  const json& entry = answer["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["bytes"], json::array({0xC3}));
  EXPECT_EQ(entry["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(entry["top_logprobs"][0]["token"], " L");
}

TEST(OpenAiChatReply, OldFunctionsAreAnsweredInTheirForm) {
  const std::vector<Event> events = {Started{}, CallMade{0, "call_a", "f", R"({"a":1})"},
                                     ChoiceEnded{.finish = Finish::kToolCalls}, Ended{}};
  const auto run = [&](const std::string& rest, std::string& out) {
    const auto reply = read_openai_chat(chat(R"("functions":[{"name":"f"}])" + rest)).make_reply(kFacts, {.id = "c"});
    for (const Event& event : events) reply->on(event, out);
    return reply->is_streamed() ? json() : json::parse(reply->response().body);
  };
  std::string out;
  const json answer = run("", out);
  EXPECT_EQ(answer["choices"][0]["message"]["function_call"], json({{"name", "f"}, {"arguments", R"({"a":1})"}}));
  EXPECT_FALSE(answer["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "function_call");
  run(R"(,"stream":true)", out);
  const std::vector<json> sent = stream_of(out);
  EXPECT_EQ(sent[1]["choices"][0]["delta"]["function_call"]["name"], "f");
  EXPECT_EQ(sent[2]["choices"][0]["finish_reason"], "function_call");
}

TEST(OpenAiChatReply, SeveralAnswersInterleave) {
  const GenerationRequest request = parse_openai_chat(chat(R"("stream":true,"n":2)"));
  const std::vector<json> sent = stream_of(
      streamed(request, {Started{}, AnswerText{.choice = 1, .text = "b"}, AnswerText{.choice = 0, .text = "a"},
                         ChoiceEnded{.choice = 1}, ChoiceEnded{.choice = 0, .finish = Finish::kLength}, Ended{}}));
  ASSERT_EQ(sent.size(), 7u);
  EXPECT_EQ(sent[0]["choices"][0]["index"], 0);
  EXPECT_EQ(sent[1]["choices"][0]["index"], 1);
  EXPECT_EQ(sent[1]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(sent[2]["choices"][0]["index"], 1);
  EXPECT_EQ(sent[4]["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(sent[4].contains("usage"));
  EXPECT_EQ(sent[5]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(sent[5].contains("usage"));
}

TEST(OpenAiChatReply, NoEmptyTextIsSentAfterTheFirstChunk) {
  const GenerationRequest request = parse_openai_chat(chat(R"("stream":true)"));
  const std::vector<json> sent =
      stream_of(streamed(request, {Started{}, ThoughtText{0, ""}, AnswerText{.text = ""}, ChoiceEnded{}, Ended{}}));
  EXPECT_EQ(sent.size(), 3u);
}

TEST(OpenAiChatReply, TokensOfEverything) {
  const GenerationRequest request = parse_openai_chat(chat(R"("return_token_ids":true)"));
  const std::vector<Event> events = {Started{.prompt = {2, 3}},
                                     ThoughtText{0, "t", {4}},
                                     AnswerText{.text = "", .tokens = {5}},
                                     CallMade{0, "c", "f", "{}", {6, 7}},
                                     ChoiceEnded{.finish = Finish::kToolCalls, .tokens = {8}},
                                     Ended{}};
  const json answer = whole(request, events);
  EXPECT_EQ(answer["prompt_token_ids"], json({2, 3}));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json({4, 5, 6, 7, 8}));
  const std::vector<json> sent =
      stream_of(streamed(parse_openai_chat(chat(R"("return_token_ids":true,"stream":true)")), events));
  EXPECT_EQ(sent[0]["prompt_token_ids"], json({2, 3}));
  std::vector<int> tokens;
  for (const json& chunk : sent) {
    if (!chunk.is_object()) continue;
    for (const int token : chunk["choices"][0].value("token_ids", json::array())) tokens.push_back(token);
  }
  EXPECT_THAT(tokens, testing::ElementsAre(4, 5, 6, 7, 8));
}

TEST(OpenAiChatReply, ProgressTimingsAndNotes) {
  const GenerationRequest request =
      parse_openai_chat(chat(R"("stream":true,"return_progress":true,"timings_per_token":true)"));
  const std::vector<json> sent = stream_of(
      streamed(request, {Started{.notes = {"a wish"}}, Progress{10, 4, 8, 1.5},
                         AnswerText{.text = "x", .so_far = Usage{.completion_tokens = 1, .decode_seconds = 0.5}},
                         ChoiceEnded{}, Ended{}}));
  EXPECT_EQ(sent[1]["prompt_progress"], json({{"total", 10}, {"cache", 4}, {"processed", 8}, {"time_ms", 1.5}}));
  EXPECT_EQ(sent[2]["timings"]["predicted_per_second"], 2.0);
  EXPECT_EQ(sent[3]["carat"]["notes"], json({"a wish"}));
  const std::vector<json> unasked =
      stream_of(streamed(parse_openai_chat(chat(R"("stream":true)")), {Started{}, Progress{}, ChoiceEnded{}, Ended{}}));
  EXPECT_EQ(unasked.size(), 3u);
}

TEST(OpenAiChatReply, WhyAnAnswerEnded) {
  const auto choice = [](const ChoiceEnded& ended) {
    return whole(parse_openai_chat(chat("")), {Started{}, ended, Ended{}})["choices"][0];
  };
  EXPECT_EQ(choice({.finish = Finish::kStopString, .stopped_by = "END"})["stop_reason"], "END");
  EXPECT_EQ(choice({.finish = Finish::kStopToken, .stop_token = 7})["stop_reason"], 7);
  EXPECT_EQ(choice({.finish = Finish::kLoop})["carat"]["ending"], "loop");
  EXPECT_EQ(choice({.finish = Finish::kLoop})["finish_reason"], "stop");
  EXPECT_EQ(choice({.finish = Finish::kContextFull})["carat"]["ending"], "context_full");
  EXPECT_EQ(choice({.finish = Finish::kContextFull})["finish_reason"], "length");
  EXPECT_FALSE(choice({.finish = Finish::kStop}).contains("carat"));
}

TEST(OpenAiChatReply, AFailureThatWouldRepeatSaysSo) {
  const auto reply = make_openai_chat_reply(parse_openai_chat(chat("")), kFacts, {.id = "c"});
  std::string out;
  reply->on(Failed{{.refusal = Refusal::kFailed, .message = "a pass failed", .is_repeatable = true}}, out);
  EXPECT_THAT(reply->response().headers, testing::Contains(testing::Pair("x-should-retry", "false")));
}

}  // namespace
}  // namespace carat::server
