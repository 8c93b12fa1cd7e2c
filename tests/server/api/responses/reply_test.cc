// OpenAI's Responses API: what the events of an answer become.
#include "server/api/responses/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/reply_driver.h"

namespace carat::server {
namespace {

using namespace test;
using nlohmann::json;

constexpr const char* kId = "resp_7f";

ParsedRequest read(const std::string& body) { return read_openai_responses(body); }

std::string ask(const std::string& rest) { return R"({"input":"Hi.")" + (rest.empty() ? "" : "," + rest) + "}"; }
std::vector<std::string> names(const std::vector<Sent>& sent) {
  std::vector<std::string> names;
  for (const Sent& one : sent) names.push_back(one.name);
  return names;
}

const std::vector<Event> kToolTurn = {
    Started{.prompt_tokens = 9, .cached_tokens = 4},
    Progress{},
    ThoughtText{0, "Need "},
    ThoughtText{0, "it."},
    AnswerText{.text = "I "},
    AnswerText{.text = "look."},
    CallMade{0, "call_a", "f", R"({"a":1})"},
    ChoiceEnded{.finish = Finish::kToolCalls},
    Ended{
        {.prompt_tokens = 9, .cached_tokens = 4, .completion_tokens = 20, .thought_tokens = 3, .decode_seconds = 2.5}}};

TEST(OpenAiResponsesReply, AStreamInItsOrder) {
  const std::vector<Sent> sent =
      streamed(read(ask(R"("stream":true,"model":"m","include":["reasoning.encrypted_content"])")), kToolTurn, kId);
  EXPECT_THAT(names(sent),
              testing::ElementsAre(
                  "response.created", "response.in_progress",                                                    //
                  "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",  //
                  "response.reasoning_text.delta", "response.reasoning_text.done", "response.output_item.done",  //
                  "response.output_item.added", "response.content_part.added", "response.output_text.delta",     //
                  "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                  "response.output_item.done",  //
                  "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.done", "response.output_item.done",  //
                  "response.completed"));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].data["sequence_number"], i);
    EXPECT_EQ(sent[i].data["type"], sent[i].name);
  }
  EXPECT_EQ(sent[0].data["response"]["status"], "in_progress");
  EXPECT_EQ(sent[0].data["response"]["output"], json::array());
  EXPECT_TRUE(sent[0].data["response"]["usage"].is_null());

  const json added = {{"type", "reasoning"},
                      {"id", "rs_7f_0"},
                      {"summary", json::array()},
                      {"content", json::array()},
                      {"status", "in_progress"}};
  EXPECT_EQ(sent[2].data["item"], added);
  EXPECT_EQ(sent[3].data["part"], json({{"type", "reasoning_text"}, {"text", ""}}));
  EXPECT_EQ(sent[4].data["item_id"], "rs_7f_0");
  EXPECT_EQ(sent[4].data["content_index"], 0);
  EXPECT_EQ(sent[4].data["delta"], "Need ");
  EXPECT_EQ(sent[6].data["text"], "Need it.");
  EXPECT_EQ(sent[7].data["item"]["content"], json({{{"type", "reasoning_text"}, {"text", "Need it."}}}));
  EXPECT_EQ(sent[7].data["item"]["encrypted_content"], "");
  EXPECT_EQ(sent[7].data["item"]["status"], "completed");

  EXPECT_EQ(sent[8].data["output_index"], 1);
  EXPECT_EQ(sent[8].data["item"]["role"], "assistant");
  EXPECT_EQ(sent[9].data["part"],
            json({{"type", "output_text"}, {"text", ""}, {"annotations", json::array()}, {"logprobs", json::array()}}));
  EXPECT_EQ(sent[10].data["logprobs"], json::array());
  EXPECT_EQ(sent[12].data["text"], "I look.");
  EXPECT_EQ(sent[13].data["part"]["text"], "I look.");
  EXPECT_EQ(sent[14].data["item"]["content"][0]["text"], "I look.");

  EXPECT_EQ(sent[15].data["item"], json({{"type", "function_call"},
                                         {"id", "fc_7f_2"},
                                         {"call_id", "call_a"},
                                         {"name", "f"},
                                         {"arguments", ""},
                                         {"status", "in_progress"}}));
  EXPECT_EQ(sent[16].data["delta"], R"({"a":1})");
  EXPECT_FALSE(sent[16].data.contains("content_index"));
  EXPECT_EQ(sent[17].data["arguments"], R"({"a":1})");
  EXPECT_EQ(sent[17].data["name"], "f");
  EXPECT_EQ(sent[18].data["item"]["arguments"], R"({"a":1})");

  const json& response = sent[19].data["response"];
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"], json({sent[7].data["item"], sent[14].data["item"], sent[18].data["item"]}));
  EXPECT_EQ(response["usage"], json({{"input_tokens", 9},
                                     {"input_tokens_details", {{"cached_tokens", 4}, {"cache_write_tokens", 5}}},
                                     {"output_tokens", 20},
                                     {"output_tokens_details", {{"reasoning_tokens", 3}}},
                                     {"total_tokens", 29}}));
}

TEST(OpenAiResponsesReply, AWholeResponseHasEveryField) {
  const json tools = {{{"type", "function"}, {"name", "f"}}, {{"type", "web_search"}}};
  const json body = {{"input", "Hi."},
                     {"instructions", "Be brief."},
                     {"model", "m"},
                     {"tools", tools},
                     {"tool_choice", "auto"},
                     {"temperature", 0.5},
                     {"max_output_tokens", 100},
                     {"metadata", {{"k", "v"}}},
                     {"reasoning", {{"effort", "high"}, {"summary", "auto"}}},
                     {"text", {{"format", {{"type", "json_object"}}}, {"verbosity", "low"}}},
                     {"user", "u"},
                     {"parallel_tool_calls", false}};
  const json response = whole(read(body.dump()), kToolTurn, kId);
  EXPECT_EQ(response["id"], kId);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["created_at"], 7);
  EXPECT_EQ(response["completed_at"], 9);
  EXPECT_EQ(response["status"], "completed");
  for (const char* field : {"error", "incomplete_details", "previous_response_id"}) {
    EXPECT_TRUE(response.at(field).is_null()) << field;
  }
  EXPECT_EQ(response["output"].size(), 3u);
  EXPECT_FALSE(response["output"][0].contains("encrypted_content"));
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_EQ(response["model"], "m");
  EXPECT_EQ(response["parallel_tool_calls"], false);
  EXPECT_EQ(response["reasoning"], json({{"effort", "high"}, {"summary", "auto"}}));
  EXPECT_EQ(response["store"], false) << "nothing is kept without a store";
  EXPECT_EQ(response["temperature"], 0.5);
  EXPECT_EQ(response["top_p"], 0.95);
  EXPECT_EQ(response["text"], body["text"]);
  EXPECT_EQ(response["tool_choice"], "auto");
  EXPECT_EQ(response["tools"], tools);
  EXPECT_EQ(response["truncation"], "disabled");
  EXPECT_EQ(response["metadata"], body["metadata"]);
  EXPECT_EQ(response["max_output_tokens"], 100);
  EXPECT_EQ(response["user"], "u");
  EXPECT_EQ(response["background"], false);
  EXPECT_EQ(response["usage"]["total_tokens"], 29);
  EXPECT_FALSE(response.contains("carat"));

  const json bare = whole(read(ask("")), {Started{}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{}}, kId);
  EXPECT_EQ(bare["text"], json({{"format", {{"type", "text"}}}}));
  EXPECT_EQ(bare["tools"], json::array());
  EXPECT_EQ(bare["metadata"], json::object());
  EXPECT_TRUE(bare["instructions"].is_null() && bare["max_output_tokens"].is_null());
  EXPECT_EQ(bare["model"], "demo");
}

TEST(OpenAiResponsesReply, AnAnswerThatWasCutIsIncomplete) {
  const std::vector<Sent> sent =
      streamed(read(ask(R"("stream":true)")),
               {Started{}, AnswerText{.text = "x"}, ChoiceEnded{.finish = Finish::kLength}, Ended{}}, kId);
  EXPECT_EQ(sent.back().name, "response.incomplete");
  EXPECT_EQ(sent.back().data["response"]["status"], "incomplete");
  EXPECT_EQ(sent.back().data["response"]["incomplete_details"], json({{"reason", "max_output_tokens"}}));
  EXPECT_TRUE(sent.back().data["response"]["completed_at"].is_null());
  EXPECT_EQ(sent.back().data["response"]["output"][0]["status"], "incomplete");
  const json response =
      whole(read(ask("")), {Started{}, ThoughtText{0, "t"}, ChoiceEnded{.finish = Finish::kContextFull}, Ended{}}, kId);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["carat"]["ending"], "context_full");
  EXPECT_EQ(response["output"].size(), 1u) << "no answer is invented where thoughts used all tokens";
}

TEST(OpenAiResponsesReply, AFailureIsTheLastEvent) {
  const std::vector<Sent> sent = streamed(read(ask(R"("stream":true)")),
                                          {Started{}, ThoughtText{0, "t"}, AnswerText{.text = "x"},
                                           Failed{{.refusal = Refusal::kFailed, .message = "a pass failed"}}},
                                          kId);
  EXPECT_EQ(sent.back().name, "response.failed");
  const json& response = sent.back().data["response"];
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"], json({{"code", "server_error"}, {"message", "a pass failed"}}));
  EXPECT_EQ(response["output"].size(), 1u) << "what was finished";
  for (const Sent& one : sent) EXPECT_NE(one.name, "response.completed");
}

TEST(OpenAiResponsesReply, AFullContextIsToldInTheStream) {
  const Problem full{
      .refusal = Refusal::kContextExceeded, .message = "too long", .prompt_tokens = 9, .context_tokens = 4};
  const ParsedRequest request = read(ask(R"("stream":true)"));
  const auto reply = request.make_reply(kFacts, {.id = kId});
  EXPECT_TRUE(reply->streams_failure(full));
  EXPECT_FALSE(reply->streams_failure({.refusal = Refusal::kQueueFull, .message = "full"}));
  std::string out;
  reply->on(Failed{full}, out);
  const std::vector<Sent> sent = events_of(out);
  EXPECT_THAT(names(sent), testing::ElementsAre("response.created", "response.in_progress", "response.failed"));
  EXPECT_EQ(sent[2].data["response"]["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(answered(read(ask("")), {Failed{full}}).status, 400u);
}

TEST(OpenAiResponsesReply, ACustomToolsCallIsItsText) {
  const ParsedRequest request = read(ask(R"("stream":true,"tools":[{"type":"custom","name":"patch"}])"));
  const std::vector<Sent> sent = streamed(request,
                                          {Started{}, CallMade{0, "call_a", "patch", R"({"input":"*** x"})"},
                                           ChoiceEnded{.finish = Finish::kToolCalls}, Ended{}},
                                          kId);
  EXPECT_EQ(sent[2].data["item"]["type"], "custom_tool_call");
  EXPECT_EQ(sent[2].data["item"]["input"], "");
  EXPECT_EQ(sent[3].name, "response.custom_tool_call_input.delta");
  EXPECT_EQ(sent[4].name, "response.custom_tool_call_input.done");
  EXPECT_EQ(sent[4].data["input"], "*** x");
  EXPECT_EQ(sent[5].data["item"]["input"], "*** x");
  EXPECT_EQ(sent[5].data["item"]["call_id"], "call_a");
}

TEST(OpenAiResponsesReply, SeveralCallsAreSeveralItems) {
  const json response = whole(read(ask("")),
                              {Started{}, CallMade{0, "a", "f", "{}"}, CallMade{0, "b", "g", "{}"},
                               ChoiceEnded{.finish = Finish::kToolCalls}, Ended{}},
                              kId);
  ASSERT_EQ(response["output"].size(), 2u);
  EXPECT_NE(response["output"][0]["id"], response["output"][1]["id"]);
  EXPECT_EQ(response["output"][1]["call_id"], "b");
}

TEST(OpenAiResponsesReply, AnAnswerOfNothingIsAnEmptyMessage) {
  const json response = whole(read(ask("")), {Started{}, ThoughtText{0, "t"}, ChoiceEnded{}, Ended{}}, kId);
  ASSERT_EQ(response["output"].size(), 2u);
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "");
}

TEST(OpenAiResponsesReply, ABadCallIsShownAsTextAndNotesAreToldOnce) {
  const json response = whole(read(ask("")),
                              {Started{.notes = {"a wish"}}, AnswerText{.text = "x "}, BadCall{0, "call:f{", "cut off"},
                               ChoiceEnded{}, Ended{}},
                              kId);
  ASSERT_EQ(response["output"].size(), 1u);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "x call:f{");
  EXPECT_EQ(response["carat"]["bad_tool_call"], json({{"text", "call:f{"}, {"problem", "cut off"}}));
  EXPECT_EQ(response["carat"]["notes"], json({"a wish"}));
}

TEST(OpenAiResponsesReply, LogprobsTravelWithTheText) {
  const std::vector<Event> events = {
      Started{}, AnswerText{.text = "x", .logprobs = {logprob("x", -0.5, {{6, "y", -2.0}})}}, ChoiceEnded{}, Ended{}};
  const std::vector<Sent> sent =
      streamed(read(ask(R"("stream":true,"include":["message.output_text.logprobs"],"top_logprobs":1)")), events, kId);
  const json expected = {{{"token", "x"},
                          {"logprob", -0.5},
                          {"bytes", {120}},
                          {"top_logprobs", {{{"token", "y"}, {"logprob", -2.0}, {"bytes", {121}}}}}}};
  EXPECT_EQ(sent[4].data["logprobs"], expected);
  EXPECT_EQ(sent[5].data["logprobs"], expected);
  EXPECT_EQ(sent[6].data["part"]["logprobs"], expected);
  const json unasked = whole(read(ask("")), events, kId);
  EXPECT_EQ(unasked["output"][0]["content"][0]["logprobs"], json::array());
}

}  // namespace
}  // namespace carat::server
