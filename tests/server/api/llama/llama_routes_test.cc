// llama-server's own routes, and the list of models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/llama/completion.h"
#include "server/api/llama/info.h"
#include "server/api/llama/tokens.h"
#include "server/api/openai/models.h"
#include "server/api/reply_driver.h"
#include "text/demo_vocab.h"

namespace carat::server {
namespace {

using namespace test;
using nlohmann::json;

json body_of(const Response& response, unsigned status = 200) {
  EXPECT_EQ(response.status, status);
  EXPECT_EQ(response.content_type, "application/json");
  return json::parse(response.body);
}

ServerFacts facts() {
  return {.model_id = "org/demo:q8",
          .aliases = {"gemma"},
          .version = "1.0",
          .created = 1795022195.0,
          .context = 4096,
          .trained_context = 131072,
          .sequences = 4,
          .file_name = "demo.gguf",
          .parameters = 15'000'000,
          .file_bytes = 20'000'000,
          .vocabulary = 1000,
          .width = 64,
          .chat_template = "{{ messages }}",
          .bos_text = "<bos>",
          .eos_text = "<eos>"};
}

TEST(Models, ListAndOne) {
  const json list = body_of(openai_models(facts()));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  const json& model = list["data"][0];
  EXPECT_EQ(model["id"], "org/demo:q8");
  EXPECT_EQ(model["object"], "model");
  EXPECT_EQ(model["created"], 1795022195);
  EXPECT_EQ(model["owned_by"], "carat");
  EXPECT_TRUE(model["parent"].is_null());
  EXPECT_EQ(model["max_model_len"], 4096);
  EXPECT_EQ(model["aliases"], json({"gemma"}));
  EXPECT_EQ(model["capabilities"], json({"completion", "tools", "thinking"}));
  EXPECT_EQ(model["meta"], json({{"n_ctx", 4096},
                                 {"n_ctx_train", 131072},
                                 {"n_vocab", 1000},
                                 {"n_embd", 64},
                                 {"n_params", 15'000'000},
                                 {"size", 20'000'000}}));
  EXPECT_EQ(body_of(openai_model(facts(), "org/demo:q8")), model);
  const json alias = body_of(openai_model(facts(), "gemma"));
  EXPECT_EQ(alias["id"], "gemma");
  EXPECT_EQ(alias["root"], "org/demo:q8");
  const Problem problem = problem_of([](const std::string& id) { openai_model(facts(), id); }, "gpt-4o");
  EXPECT_EQ(problem.refusal, Refusal::kModelNotFound);
}

TEST(InputTokens, AreOneNumber) {
  EXPECT_EQ(body_of(openai_input_tokens(11)), json({{"object", "response.input_tokens"}, {"input_tokens", 11}}));
}

TEST(Health, SaysWhetherWorkIsTaken) {
  EXPECT_EQ(body_of(health_ok()), json({{"status", "ok"}}));
  const json loading = body_of(health_loading(0.25), 503);
  EXPECT_EQ(loading["status"], "loading");
  EXPECT_EQ(loading["progress"], 0.25);
  EXPECT_EQ(loading["error"], json({{"code", 503}, {"message", "Loading model"}, {"type", "unavailable_error"}}));
  EXPECT_EQ(body_of(health_loading(7.0), 503)["progress"], 1.0);
  EXPECT_EQ(body_of(health_loading(-1.0), 503)["progress"], 0.0);
  const json draining = body_of(health_draining(), 404);
  EXPECT_EQ(draining["status"], "draining");
  EXPECT_EQ(draining["error"]["code"], 404) << "what balancers take for an end in good order";
  EXPECT_THAT(health_draining().headers, testing::Contains(testing::Pair("Retry-After", "1")));
}

TEST(LlamaProps, WhatPagesRead) {
  const json props = body_of(llama_props(facts()));
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 4096);
  EXPECT_EQ(props["default_generation_settings"]["params"]["top_k"], 64);
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["model_path"], "demo.gguf");
  EXPECT_EQ(props["chat_template"], "{{ messages }}");
  EXPECT_EQ(props["modalities"], json({{"vision", false}, {"audio", false}}));
  EXPECT_EQ(props["build_info"], "carat 1.0");
  EXPECT_EQ(props["is_sleeping"], false);
  EXPECT_EQ(props["bos_token"], "<bos>");
}

TEST(LlamaSlots, AreNumbersOnly) {
  const std::vector<SlotFigures> slots = {{.id = 0,
                                           .task = 9,
                                           .context = 4096,
                                           .is_running = true,
                                           .prompt_tokens = 100,
                                           .cached_tokens = 60,
                                           .read_tokens = 40,
                                           .generated_tokens = 7},
                                          {.id = 1, .context = 4096}};
  const json answer = body_of(llama_slots(slots, true));
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0]["id_task"], 9);
  EXPECT_EQ(answer[0]["is_processing"], true);
  EXPECT_EQ(answer[0]["next_token"]["n_decoded"], 7);
  EXPECT_EQ(answer[0]["n_prompt_tokens_cache"], 60);
  EXPECT_EQ(answer[1]["id_task"], -1);
  EXPECT_EQ(answer[1]["is_processing"], false);
}

TEST(LlamaSlots, NoneFreeIsAnErrorWhereThatWasAsked) {
  const std::vector<SlotFigures> slots = {{.is_running = true}};
  EXPECT_EQ(llama_slots(slots, false).status, 200u);
  EXPECT_EQ(llama_slots(slots, true).status, 503u);
}

TEST(ChatControl, EndsThoughts) {
  const ChatControl control = read_chat_control(R"({"id":"chatcmpl-1","action":"reasoning_end"})");
  EXPECT_EQ(control.id, "chatcmpl-1");
  EXPECT_EQ(control.action, ChatControl::Action::kEndThoughts);
  EXPECT_EQ(problem_of(read_chat_control, R"({"action":"reasoning_end"})").param, "id");
  EXPECT_EQ(problem_of(read_chat_control, R"({"id":"a"})").param, "action");
  EXPECT_EQ(problem_of(read_chat_control, R"({"id":"a","action":"explode"})").param, "action");
  EXPECT_EQ(problem_of(read_chat_control, R"({"id":7,"action":"reasoning_end"})").param, "id");
  EXPECT_EQ(body_of(chat_control_done()), json({{"success", true}}));
}

class LlamaTokens : public testing::Test {
 protected:
  json tokenize(const std::string& body) { return body_of(llama_tokenize(body, tokenizer_))["tokens"]; }
  Problem tokenize_problem(const std::string& body) {
    return problem_of([&](const std::string& text) { llama_tokenize(text, tokenizer_); }, body);
  }
  Problem detokenize_problem(const std::string& body) {
    return problem_of([&](const std::string& text) { llama_detokenize(text, tokenizer_.vocab()); }, body);
  }

  text::Tokenizer tokenizer_{text::test::demo_vocab()};
};

TEST_F(LlamaTokens, ThereAndBack) {
  const json tokens = tokenize(R"({"content":"The word \u00e9t\u00e9."})");
  EXPECT_EQ(tokens, json(tokenizer_.encode("The word \u00e9t\u00e9.")));
  const Response response = llama_detokenize(json({{"tokens", tokens}}).dump(), tokenizer_.vocab());
  EXPECT_EQ(body_of(response)["content"], "The word \u00e9t\u00e9.");
}

TEST_F(LlamaTokens, SpecialTextsAreTokensUnlessTheyAreNotToBe) {
  const std::string turn = R"("content":"<|turn>user")";
  const size_t parsed = tokenize("{" + turn + "}").size();
  const size_t plain = tokenize("{" + turn + R"(,"parse_special":false})").size();
  EXPECT_LT(parsed, plain);
  const json with_bos = tokenize("{" + turn + R"(,"add_special":true})");
  EXPECT_EQ(with_bos.size(), parsed + 1);
  EXPECT_EQ(with_bos[0], tokenizer_.vocab().bos());
}

TEST_F(LlamaTokens, PiecesAreTextsOrBytes) {
  // A character beyond the vocabulary becomes its bytes.
  const json pieces = tokenize(R"({"content":"a\ud83e\uddff","with_pieces":true})");
  std::string bytes;
  bool has_bytes = false;
  for (const json& piece : pieces) {
    EXPECT_TRUE(piece["id"].is_number_integer());
    if (piece["piece"].is_string()) {
      bytes += piece["piece"].get<std::string>();
    } else {
      has_bytes = true;
      for (const json& byte : piece["piece"]) bytes += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_TRUE(has_bytes);
  EXPECT_EQ(bytes, "a\U0001F9FF");
}

TEST_F(LlamaTokens, TextsAndTokensMix) {
  const json tokens = tokenize(R"({"content":["a",7,"b"]})");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[1], 7);
}

TEST_F(LlamaTokens, ComplaintsNameTheField) {
  EXPECT_EQ(tokenize_problem("{}").param, "content");
  EXPECT_EQ(tokenize_problem(R"({"content":["a",-1]})").param, "content[1]");
  EXPECT_EQ(tokenize_problem(R"({"content":["a",{}]})").param, "content[1]");
  EXPECT_EQ(tokenize_problem(R"({"content":"a","with_pieces":1})").param, "with_pieces");
  EXPECT_EQ(detokenize_problem("{}").param, "tokens");
  EXPECT_EQ(detokenize_problem(R"({"tokens":[1,99999999]})").param, "tokens[1]");
  EXPECT_EQ(detokenize_problem(R"({"tokens":[1.5]})").param, "tokens[0]");
  EXPECT_EQ(detokenize_problem(R"({"tokens":"a"})").param, "tokens");
}

TEST_F(LlamaTokens, ATemplateIsAppliedToAChatsBody) {
  const GenerationRequest request = read_llama_apply_template(R"({"messages":[{"role":"user","content":"Hi."}]})");
  ASSERT_TRUE(request.conversation.has_value());
  EXPECT_EQ(body_of(llama_apply_template("<bos>\n\"x\"")), json({{"prompt", "<bos>\n\"x\""}}));
  EXPECT_EQ(problem_of(read_llama_apply_template, "{}").param, "messages");
}

TEST(LlamaCompletionRequest, ItsOwnNames) {
  const GenerationRequest request =
      read_llama_completion(R"({"prompt":"a","n_predict":7,"max_tokens":3,"n_probs":2,"repeat_penalty":1.2})")
          .generation;
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.logprobs.top, 2u);
  EXPECT_TRUE(request.parse_special) << "clients of this route render templates themselves";
  EXPECT_EQ(request.sampling.repeat_penalty, 1.2);
  EXPECT_FALSE(read_llama_completion(R"({"prompt":"a"})").generation.max_tokens.has_value());
  EXPECT_FALSE(read_llama_completion(R"({"prompt":"a","n_predict":-1,"max_tokens":3})").generation.max_tokens);
  EXPECT_FALSE(read_llama_completion(R"({"prompt":"a","parse_special":false})").generation.parse_special);
  const auto problem = [](const std::string& body) { return problem_of(read_llama_completion, body); };
  EXPECT_EQ(problem(R"({"n_predict":3})").param, "prompt");
  EXPECT_EQ(problem(R"({"prompt":"a","n_predict":"x"})").param, "n_predict");
  EXPECT_EQ(problem(R"({"prompt":"a","n_probs":21})").param, "n_probs");
  EXPECT_EQ(problem(R"({"prompt":"a","post_sampling_probs":true})").param, "post_sampling_probs");
  EXPECT_EQ(problem(R"({"prompt":{"prompt_string":"a"}})").param, "prompt");
}

TEST(LlamaCompletionReply, AWholeResult) {
  const ParsedRequest request = read_llama_completion(
      R"({"prompt":"Once","n_predict":9,"temperature":0.5,"seed":3,"stop":["x"],"return_tokens":true,"n_probs":1})");
  const json result =
      whole(request, {Started{.prompt_tokens = 4, .cached_tokens = 3},
                      AnswerText{.text = "a\n", .logprobs = {logprob("a\n", -0.5, {{6, "b", -1.5}})}, .tokens = {5}},
                      ChoiceEnded{.finish = Finish::kStopString, .stopped_by = "x", .completion_tokens = 2},
                      Ended{{.prompt_tokens = 4, .cached_tokens = 3, .completion_tokens = 2}}});
  EXPECT_EQ(result["content"], "a\n");
  EXPECT_EQ(result["stop"], true);
  EXPECT_EQ(result["stop_type"], "word");
  EXPECT_EQ(result["stopping_word"], "x");
  EXPECT_EQ(result["tokens"], json({5}));
  EXPECT_EQ(result["tokens_predicted"], 2);
  EXPECT_EQ(result["tokens_evaluated"], 4);
  EXPECT_EQ(result["tokens_cached"], 3);
  EXPECT_EQ(result["truncated"], false);
  EXPECT_EQ(result["has_new_line"], true);
  EXPECT_EQ(result["prompt"], "Once");
  EXPECT_EQ(result["model"], "demo");
  EXPECT_EQ(result["timings"]["prompt_n"], 1);
  EXPECT_EQ(result["generation_settings"]["n_predict"], 9);
  EXPECT_EQ(result["generation_settings"]["seed"], 3);
  EXPECT_EQ(result["generation_settings"]["temperature"], 0.5);
  EXPECT_EQ(result["generation_settings"]["top_k"], 64);
  EXPECT_EQ(result["generation_settings"]["stop"], json({"x"}));
  const json& probability = result["completion_probabilities"][0];
  EXPECT_EQ(probability["id"], 5);
  EXPECT_EQ(probability["bytes"], json({97, 10}));
  EXPECT_EQ(probability["top_logprobs"][0], json({{"id", 6}, {"token", "b"}, {"bytes", {98}}, {"logprob", -1.5}}));
}

TEST(LlamaCompletionReply, WhyItStopped) {
  const auto result = [](const ChoiceEnded& ended) {
    return whole(read_llama_completion(R"({"prompt":"a"})"), {Started{}, ended, Ended{}});
  };
  EXPECT_EQ(result({.finish = Finish::kStop})["stop_type"], "eos");
  EXPECT_EQ(result({.finish = Finish::kStopToken})["stop_type"], "eos");
  EXPECT_EQ(result({.finish = Finish::kLength})["stop_type"], "limit");
  EXPECT_EQ(result({.finish = Finish::kLength})["truncated"], false);
  EXPECT_EQ(result({.finish = Finish::kContextFull})["truncated"], true);
  EXPECT_EQ(result({.finish = Finish::kLoop})["carat"]["ending"], "loop");
}

TEST(LlamaCompletionReply, AStreamEndsWithAResultAndNoTerminator) {
  const ParsedRequest request =
      read_llama_completion(R"({"prompt":"a","stream":true,"return_progress":true,"n_probs":1})");
  const std::vector<Sent> sent =
      streamed(request, {Started{.prompt_tokens = 2}, Progress{2, 0, 1, 0.5},
                         AnswerText{.text = "x", .logprobs = {logprob("x", -1.0)}, .tokens = {4}},
                         AnswerText{.text = "y", .tokens = {5}}, ChoiceEnded{.completion_tokens = 2}, Ended{}});
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent[0].data["prompt_progress"]["total"], 2);
  EXPECT_EQ(sent[1].data["content"], "x");
  EXPECT_EQ(sent[1].data["tokens"], json({4}));
  EXPECT_EQ(sent[1].data["stop"], false);
  EXPECT_EQ(sent[1].data["completion_probabilities"].size(), 1u);
  EXPECT_EQ(sent[2].data["tokens_predicted"], 2);
  EXPECT_EQ(sent[3].data["stop"], true);
  EXPECT_EQ(sent[3].data["content"], "");
  EXPECT_EQ(sent[3].data["tokens"], json::array());
}

TEST(LlamaCompletionReply, SeveralPromptsMakeAList) {
  const ParsedRequest request = read_llama_completion(R"({"prompt":["a","b"]})");
  const json results = whole(request, {Started{.prompt_tokens = 1}, Started{.prompt_tokens = 2, .index = 1},
                                       AnswerText{.choice = 1, .text = "y"}, ChoiceEnded{0}, ChoiceEnded{1}, Ended{}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1]["index"], 1);
  EXPECT_EQ(results[1]["content"], "y");
  EXPECT_EQ(results[1]["prompt"], "b");
  EXPECT_EQ(results[1]["tokens_evaluated"], 2);
}

TEST(LlamaCompletionReply, AFailureIsTold) {
  const Failed failed{{.refusal = Refusal::kFailed, .message = "a pass failed"}};
  EXPECT_EQ(answered(read_llama_completion(R"({"prompt":"a"})"), {Started{}, failed}).status, 500u);
  const std::vector<Sent> sent =
      streamed(read_llama_completion(R"({"prompt":"a","stream":true})"), {AnswerText{.text = "x"}, failed});
  EXPECT_EQ(sent.back().data["error"]["message"], "a pass failed");
}

}  // namespace
}  // namespace carat::server
