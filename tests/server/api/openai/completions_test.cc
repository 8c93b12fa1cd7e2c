// OpenAI's raw completions: what a request becomes, and what the events of its answer become.
#include "server/api/openai/completions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "server/api/reply_driver.h"

namespace carat::server {
namespace {

using namespace test;
using nlohmann::json;
using Tokens = std::vector<text::TokenId>;

Problem problem(const std::string& body) { return problem_of(parse_openai_completions, body); }

std::string body(const std::string& rest) { return R"({"prompt":"Once")" + (rest.empty() ? "" : "," + rest) + "}"; }

TEST(OpenAiCompletionsRequest, PromptsInAllTheirForms) {
  const auto prompts = [](const std::string& prompt) {
    return parse_openai_completions(R"({"prompt":)" + prompt + "}").prompts;
  };
  EXPECT_THAT(prompts(R"("a")"), testing::ElementsAre(RawPrompt("a")));
  EXPECT_THAT(prompts(R"("")"), testing::ElementsAre(RawPrompt("")));
  EXPECT_THAT(prompts(R"(["a","b"])"), testing::ElementsAre(RawPrompt("a"), RawPrompt("b")));
  EXPECT_THAT(prompts("[1,2]"), testing::ElementsAre(RawPrompt(Tokens{1, 2})));
  EXPECT_THAT(prompts(R"([[1],"b",[2,3]])"),
              testing::ElementsAre(RawPrompt(Tokens{1}), RawPrompt("b"), RawPrompt(Tokens{2, 3})));
}

TEST(OpenAiCompletionsRequest, WhatIsNotGivenIsAsInOpenAisApi) {
  const GenerationRequest request = parse_openai_completions(body(""));
  EXPECT_FALSE(request.conversation.has_value());
  EXPECT_EQ(request.max_tokens, 16u);
  EXPECT_FALSE(request.parse_special || request.echo || request.stream || request.logprobs.wanted);
  EXPECT_EQ(parse_openai_completions(body(R"("max_tokens":null)")).max_tokens, 16u);
  EXPECT_EQ(parse_openai_completions(body(R"("max_tokens":5)")).max_tokens, 5u);
  EXPECT_FALSE(parse_openai_completions(body(R"("max_tokens":-1)")).max_tokens.has_value());
  EXPECT_EQ(parse_openai_completions(body(R"("max_tokens":0)")).max_tokens, 0u);
}

TEST(OpenAiCompletionsRequest, FieldsArriveWhereTheyBelong) {
  const GenerationRequest request = parse_openai_completions(
      body(R"("model":"m","n":2,"best_of":2,"echo":true,"suffix":"","stop":["x"],"parse_special":true,"seed":4,
              "temperature":0,"ignore_eos":true,"min_tokens":3,"guided_regex":"a+","user":"u","logit_bias":{"7":1})"));
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.choices, 2u);
  EXPECT_TRUE(request.echo && request.parse_special && request.ignore_eos);
  EXPECT_THAT(request.stops, testing::ElementsAre("x"));
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kRegex);
  EXPECT_EQ(request.affinity, "u");
}

TEST(OpenAiCompletionsRequest, LogprobsAreANumber) {
  EXPECT_TRUE(parse_openai_completions(body(R"("logprobs":0)")).logprobs.wanted);
  EXPECT_EQ(parse_openai_completions(body(R"("logprobs":0)")).logprobs.top, 0u);
  EXPECT_EQ(parse_openai_completions(body(R"("logprobs":5)")).logprobs.top, 5u);
  EXPECT_FALSE(parse_openai_completions(body(R"("logprobs":null)")).logprobs.wanted);
  EXPECT_EQ(problem(body(R"("logprobs":21)")).param, "logprobs");
}

TEST(OpenAiCompletionsRequest, ComplaintsNameTheField) {
  EXPECT_EQ(problem("{}").param, "prompt");
  EXPECT_EQ(problem(R"({"prompt":null})").param, "prompt");
  EXPECT_EQ(problem(R"({"prompt":[]})").param, "prompt");
  EXPECT_EQ(problem(R"({"prompt":{"a":1}})").param, "prompt");
  EXPECT_EQ(problem(R"({"prompt":[[]]})").param, "prompt[0]");
  EXPECT_EQ(problem(R"({"prompt":[1,"a"]})").param, "prompt[1]");
  EXPECT_EQ(problem(R"({"prompt":[1,-2]})").param, "prompt[1]");
  EXPECT_EQ(problem(R"({"prompt":[1,2147483648]})").param, "prompt[1]");
  EXPECT_EQ(problem(R"({"prompt":["a",["b"]]})").param, "prompt[1][0]");
  EXPECT_EQ(problem(R"({"prompt":["a",true]})").param, "prompt[1]");
  EXPECT_EQ(problem(body(R"("suffix":"end")")).param, "suffix");
  EXPECT_EQ(problem(body(R"("suffix":"end")")).code, "unsupported_parameter");
  EXPECT_EQ(problem(body(R"("best_of":2)")).param, "best_of");
  EXPECT_EQ(problem(body(R"("echo":true,"logprobs":1)")).param, "echo");
  EXPECT_EQ(problem(body(R"("n":0)")).param, "n");
  EXPECT_EQ(problem("{").code, "invalid_json");
  std::string many = R"({"prompt":["")";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += R"(,"")";
  EXPECT_EQ(problem(many + "]}").param, "prompt");
}

TEST(OpenAiCompletionsReply, AStreamInItsOrder) {
  const ParsedRequest request =
      read_openai_completions(body(R"("stream":true,"stream_options":{"include_usage":true},"model":"m")"));
  const std::vector<Sent> sent =
      streamed(request, {Started{.prompt_tokens = 2}, AnswerText{.text = " upon"}, AnswerText{.text = ""},
                         AnswerText{.text = " a"}, ChoiceEnded{.finish = Finish::kLength},
                         Ended{{.prompt_tokens = 2, .cached_tokens = 1, .completion_tokens = 3}}});
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[0].data["choices"][0],
            json({{"index", 0}, {"text", " upon"}, {"logprobs", nullptr}, {"finish_reason", nullptr}}));
  EXPECT_EQ(sent[1].data["choices"][0]["text"], " a");
  EXPECT_EQ(sent[2].data["choices"][0]["text"], "");
  EXPECT_EQ(sent[2].data["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(sent[2].data.contains("usage"));
  EXPECT_EQ(sent[3].data["choices"], json::array());
  EXPECT_EQ(sent[3].data["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(sent[3].data["timings"]["predicted_n"], 3);
  EXPECT_EQ(sent[4].data, "[DONE]");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sent[i].data["object"], "text_completion");
    EXPECT_EQ(sent[i].data["id"], "id_1");
    EXPECT_EQ(sent[i].data["model"], "m");
  }
}

TEST(OpenAiCompletionsReply, UsageTravelsWithTheEndWhereNobodyAskedForIt) {
  const ParsedRequest request = read_openai_completions(body(R"("stream":true)"));
  const std::vector<Sent> sent = streamed(request, {Started{}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{}});
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].data["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(sent[1].data.contains("usage"));
  EXPECT_EQ(sent[2].data, "[DONE]");
}

TEST(OpenAiCompletionsReply, ChoicesAreNumberedByPromptAndAnswer) {
  const ParsedRequest request = read_openai_completions(R"({"prompt":["a",[1]],"n":2,"echo":true})");
  const json answer =
      whole(request, {Started{.index = 0}, Started{.index = 1, .text = "one"}, AnswerText{.choice = 3, .text = "!"},
                      AnswerText{.choice = 0, .text = "?"}, ChoiceEnded{.choice = 0}, ChoiceEnded{.choice = 1},
                      ChoiceEnded{.choice = 2}, ChoiceEnded{.choice = 3, .finish = Finish::kLength}, Ended{}});
  ASSERT_EQ(answer["choices"].size(), 4u);
  const std::vector<std::string> texts = {"a?", "a", "one", "one!"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(answer["choices"][3]["finish_reason"], "length");
}

TEST(OpenAiCompletionsReply, AStreamRepeatsItsPromptFirst) {
  const ParsedRequest request = read_openai_completions(body(R"("stream":true,"echo":true,"n":2)"));
  const std::vector<Sent> sent = streamed(request, {Started{}, AnswerText{.choice = 1, .text = "x"},
                                                    ChoiceEnded{.choice = 0}, ChoiceEnded{.choice = 1}, Ended{}});
  EXPECT_EQ(sent[0].data["choices"][0]["text"], "Once");
  EXPECT_EQ(sent[0].data["choices"][0]["index"], 0);
  EXPECT_EQ(sent[1].data["choices"][0]["text"], "Once");
  EXPECT_EQ(sent[1].data["choices"][0]["index"], 1);
  EXPECT_EQ(sent[2].data["choices"][0]["index"], 1);
  EXPECT_EQ(sent[3].data["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(sent[4].data["choices"][0]["index"], 1);
}

TEST(OpenAiCompletionsReply, LogprobsInTheirOldForm) {
  const ParsedRequest request = read_openai_completions(body(R"("logprobs":2)"));
  const json answer = whole(
      request, {Started{}, AnswerText{.text = "\xC3\xA9", .logprobs = {logprob("\xC3", -1.0, {{6, "a", -0.5}})}},
                AnswerText{.text = "b", .logprobs = {logprob("\xA9", -2.0), logprob("b", -HUGE_VAL, {{6, "b", -0.1}})}},
                ChoiceEnded{}, Ended{}});
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"bytes:\\xc3", "bytes:\\xa9", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-1.0, -2.0, -9999.0}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 0, 1})) << "counted in characters of the text";
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"a", -0.5}, {"bytes:\\xc3", -1.0}}));
  EXPECT_EQ(logprobs["top_logprobs"][2], json({{"b", -0.1}})) << "a key stands only once";
}

TEST(OpenAiCompletionsReply, OffsetsGoOnFromChunkToChunk) {
  const ParsedRequest request = read_openai_completions(body(R"("logprobs":0,"stream":true)"));
  const std::vector<Sent> sent =
      streamed(request, {Started{}, AnswerText{.text = " upon", .logprobs = {logprob(" upon", -1.0)}},
                         AnswerText{.text = " a", .logprobs = {logprob(" a", -1.0)}}, ChoiceEnded{}, Ended{}});
  EXPECT_EQ(sent[0].data["choices"][0]["logprobs"]["text_offset"], json({0}));
  EXPECT_EQ(sent[1].data["choices"][0]["logprobs"]["text_offset"], json({5}));
}

TEST(OpenAiCompletionsReply, TokensWhereTheyAreAskedFor) {
  const ParsedRequest request = read_openai_completions(body(R"("return_token_ids":true)"));
  const json answer = whole(request, {Started{.prompt = {2, 3}}, AnswerText{.text = "x", .tokens = {4}},
                                      ChoiceEnded{.tokens = {1}}, Ended{}});
  EXPECT_EQ(answer["choices"][0]["prompt_token_ids"], json({2, 3}));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json({4, 1}));
  const std::vector<Sent> sent =
      streamed(read_openai_completions(body(R"("return_token_ids":true,"stream":true)")),
               {Started{.prompt = {2, 3}}, AnswerText{.text = "", .tokens = {4}}, ChoiceEnded{.tokens = {1}}, Ended{}});
  EXPECT_EQ(sent[0].data["choices"][0]["prompt_token_ids"], json({2, 3}));
  EXPECT_EQ(sent[1].data["choices"][0]["token_ids"], json({4}));
  EXPECT_EQ(sent[2].data["choices"][0]["token_ids"], json({1}));
}

TEST(OpenAiCompletionsReply, WhyAnAnswerEnded) {
  const ParsedRequest request = read_openai_completions(body(R"("n":4)"));
  const json answer = whole(request, {Started{.notes = {"a wish"}}, ChoiceEnded{0, Finish::kStopString, "\n"},
                                      ChoiceEnded{.choice = 1, .finish = Finish::kStopToken, .stop_token = 9},
                                      ChoiceEnded{2, Finish::kLoop}, ChoiceEnded{3, Finish::kContextFull}, Ended{}});
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "\n");
  EXPECT_EQ(answer["choices"][1]["stop_reason"], 9);
  EXPECT_EQ(answer["choices"][2]["carat"]["ending"], "loop");
  EXPECT_EQ(answer["choices"][2]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][3]["carat"]["ending"], "context_full");
  EXPECT_EQ(answer["choices"][3]["finish_reason"], "length");
  EXPECT_EQ(answer["carat"]["notes"], json({"a wish"}));
}

TEST(OpenAiCompletionsReply, ProgressAndTimings) {
  const ParsedRequest request =
      read_openai_completions(body(R"("stream":true,"return_progress":true,"timings_per_token":true)"));
  const std::vector<Sent> sent =
      streamed(request, {Started{}, Progress{10, 4, 8, 1.5},
                         AnswerText{.text = "x", .so_far = Usage{.completion_tokens = 1, .decode_seconds = 0.5}},
                         ChoiceEnded{}, Ended{}});
  EXPECT_EQ(sent[0].data["prompt_progress"], json({{"total", 10}, {"cache", 4}, {"processed", 8}, {"time_ms", 1.5}}));
  EXPECT_EQ(sent[0].data["choices"], json::array());
  EXPECT_EQ(sent[1].data["timings"]["predicted_per_second"], 2.0);
}

TEST(OpenAiCompletionsReply, AFailureIsTold) {
  const Failed failed{{.refusal = Refusal::kFailed, .message = "a pass failed", .is_repeatable = true}};
  const std::vector<Sent> sent =
      streamed(read_openai_completions(body(R"("stream":true)")), {Started{}, AnswerText{.text = "x"}, failed});
  EXPECT_EQ(sent.back().data["error"]["message"], "a pass failed");
  const Response response = answered(read_openai_completions(body("")), {Started{}, failed});
  EXPECT_EQ(response.status, 500u);
  EXPECT_THAT(response.headers, testing::Contains(testing::Pair("x-should-retry", "false")));
}

}  // namespace
}  // namespace carat::server
