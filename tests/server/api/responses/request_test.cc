// OpenAI's Responses API: what a request becomes.
#include "server/api/responses/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/reply_driver.h"

namespace carat::server {
namespace {

using namespace test;
using nlohmann::json;
using text::Role;

ParsedRequest read(const std::string& body) { return read_openai_responses(body); }
GenerationRequest parse(const std::string& body) { return read(body).generation; }
Problem problem(const std::string& body) { return problem_of(read, body); }

std::string ask(const std::string& rest) { return R"({"input":"Hi.")" + (rest.empty() ? "" : "," + rest) + "}"; }
std::string items(const std::string& items) { return R"({"input":[)" + items + "]}"; }

TEST(OpenAiResponsesRequest, ATextIsAUsersMessage) {
  const GenerationRequest request = parse(ask(R"("model":"m","instructions":"Be brief.","max_output_tokens":9)"));
  ASSERT_TRUE(request.conversation.has_value());
  ASSERT_EQ(request.conversation->messages.size(), 2u);
  EXPECT_EQ(request.conversation->messages[0].role, Role::kSystem);
  EXPECT_EQ(request.conversation->messages[0].content.joined(), "Be brief.");
  EXPECT_EQ(request.conversation->messages[1].content.joined(), "Hi.");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 9u);
  EXPECT_EQ(request.choices, 1u);
  EXPECT_FALSE(request.stream);
}

TEST(OpenAiResponsesRequest, LeadingDeveloperMessagesAreTheSystemTurn) {
  // As Codex sends its instructions.
  const GenerationRequest request = parse(items(
      R"({"type":"message","role":"developer","content":[{"type":"input_text","text":"A"}]},
         {"role":"developer","content":"B"},{"role":"system","content":"C"},{"role":"user","content":"q"})"));
  const auto& messages = request.conversation->messages;
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[0].content.joined(), "A\n\nB\n\nC");
}

TEST(OpenAiResponsesRequest, WhatTheModelDidInARowIsOneTurn) {
  const GenerationRequest request = parse(items(R"(
      {"role":"user","content":"q"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\":1}"},
      {"type":"function_call","call_id":"c2","name":"g","arguments":""},
      {"type":"function_call_output","call_id":"c1","output":"r1"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"r2"}]},
      {"type":"message","role":"assistant","content":"Done."},
      {"role":"user","content":"thanks"})"));
  const auto& messages = request.conversation->messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[1].role, Role::kModel);
  EXPECT_EQ(messages[1].reasoning, "t");
  EXPECT_EQ(messages[1].content.joined(), "I look.");
  ASSERT_EQ(messages[1].tool_calls.size(), 2u);
  EXPECT_EQ(messages[1].tool_calls[0].id, "c1") << "the link is call_id";
  EXPECT_EQ(messages[1].tool_calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(messages[1].tool_calls[1].arguments, "{}");
  EXPECT_EQ(messages[2].role, Role::kTool);
  EXPECT_EQ(messages[2].tool_call_id, "c1");
  EXPECT_EQ(messages[3].content.joined(), "r2");
  EXPECT_EQ(messages[4].content.joined(), "Done.");
}

TEST(OpenAiResponsesRequest, OtherItemsAreCallsAndResultsOrLeftOutWithANote) {
  const GenerationRequest request = parse(items(R"(
      {"role":"user","content":"q"},
      {"type":"custom_tool_call","call_id":"c1","name":"patch","input":"*** x"},
      {"type":"custom_tool_call_output","call_id":"c1","output":"ok"},
      {"type":"local_shell_call","call_id":"c2","action":{"type":"exec","command":["ls"]}},
      {"type":"local_shell_call_output","call_id":"c2","output":"files"},
      {"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"web_search_call","id":"ws_2"},
      {"type":"compaction","encrypted_content":"x"},{"type":"item_reference","id":"msg_1"},
      {"type":"My secret words"},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"x"})"));
  const auto& messages = request.conversation->messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1].tool_calls[0].name, "patch");
  EXPECT_EQ(messages[1].tool_calls[0].arguments, R"({"input":"*** x"})");
  EXPECT_EQ(messages[2].content.joined(), "ok");
  EXPECT_EQ(messages[3].tool_calls[0].name, "local_shell");
  EXPECT_EQ(messages[3].tool_calls[0].arguments, R"({"type":"exec","command":["ls"]})");
  EXPECT_EQ(messages[4].content.joined(), "files");
  EXPECT_THAT(request.notes, testing::UnorderedElementsAre("input: 2 items of type web_search_call left out",
                                                           "input: 1 item of type compaction left out",
                                                           "input: 1 item of type item_reference left out",
                                                           "input: 1 item of type (unknown) left out"))
      << "notes are logged, so nobody's words are in them";
}

TEST(OpenAiResponsesRequest, AResultWithoutItsCallIsText) {
  const GenerationRequest request =
      parse(items(R"({"role":"user","content":"q"},{"type":"function_call_output","call_id":"c9","output":"r"})"));
  ASSERT_EQ(request.conversation->messages.size(), 2u);
  EXPECT_EQ(request.conversation->messages[1].role, Role::kUser);
  EXPECT_EQ(request.conversation->messages[1].content.joined(), "Result of a tool: r");
}

TEST(OpenAiResponsesRequest, ToolsAreFlat) {
  const GenerationRequest request = parse(ask(
      R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},
                  {"type":"namespace","name":"multi","tools":[{"type":"function","name":"x"}]},
                  {"type":"web_search","external_web_access":false},
                  {"type":"custom","name":"patch","format":{"type":"grammar","syntax":"lark","definition":"s"}}],
         "tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false)"));
  const auto& tools = request.conversation->tools;
  ASSERT_EQ(tools.size(), 2u);
  EXPECT_EQ(json::parse(tools[0].json)["function"],
            json({{"name", "f"}, {"description", "d"}, {"parameters", {{"type", "object"}}}, {"strict", true}}));
  EXPECT_EQ(json::parse(tools[1].json)["function"]["parameters"]["required"], json({"input"}));
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(request.tool_choice.allowed, testing::ElementsAre("f"));
  EXPECT_FALSE(request.tool_choice.is_parallel);
  EXPECT_THAT(request.notes, testing::ElementsAre(testing::HasSubstr("tools[3].format")));
}

TEST(OpenAiResponsesRequest, ToolChoiceInAllItsForms) {
  const std::string tools = R"("tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":)";
  EXPECT_EQ(parse(ask(tools + R"("none")")).tool_choice.mode, ToolChoice::Mode::kNone);
  EXPECT_EQ(parse(ask(tools + R"("required")")).tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_EQ(parse(ask(tools + R"("auto")")).tool_choice.mode, ToolChoice::Mode::kAuto);
  const ToolChoice some = parse(ask(tools + R"({"type":"allowed_tools","mode":"required","tools":[
      {"type":"function","name":"g"},{"type":"web_search"}]})"))
                              .tool_choice;
  EXPECT_EQ(some.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(some.allowed, testing::ElementsAre("g"));
  EXPECT_EQ(problem(ask(tools + R"({"type":"function","name":"h"})")).param, "tool_choice");
  EXPECT_EQ(problem(ask(tools + R"({"type":"web_search"})")).param, "tool_choice.type");
  EXPECT_EQ(problem(ask(tools + R"("sometimes")")).param, "tool_choice");
  EXPECT_EQ(problem(ask(R"("tool_choice":"required")")).param, "tool_choice");
}

TEST(OpenAiResponsesRequest, FormatAndThinking) {
  const GenerationRequest request = parse(ask(
      R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}},
         "reasoning":{"effort":"low","summary":"auto"})"));
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(request.format.source, R"({"type":"object"})");
  EXPECT_EQ(request.format.param, "text.format.schema");
  EXPECT_EQ(request.thinking.is_on, true);
  EXPECT_EQ(request.thinking.budget, 1024u);
  EXPECT_EQ(parse(ask(R"("text":{"format":{"type":"json_object"}})")).format.kind, AnswerFormat::Kind::kJsonObject);
  EXPECT_EQ(parse(ask(R"("text":{"format":{"type":"text"},"verbosity":"low"})")).format.kind,
            AnswerFormat::Kind::kText);
  EXPECT_EQ(parse(ask(R"("reasoning":{"effort":"none"})")).thinking.is_on, false);
  EXPECT_FALSE(parse(ask(R"("reasoning":{"effort":null})")).thinking.is_on.has_value());
  EXPECT_EQ(problem(ask(R"("reasoning":{"effort":"huge"})")).param, "reasoning.effort");
  EXPECT_EQ(problem(ask(R"("text":{"format":{"type":"json_schema","name":"n"}})")).param, "text.format.schema");
  EXPECT_EQ(problem(ask(R"("text":{"format":{"type":"yaml"}})")).param, "text.format.type");
}

TEST(OpenAiResponsesRequest, LogprobsAreAskedForByIncludeOrNumber) {
  EXPECT_TRUE(parse(ask(R"("include":["message.output_text.logprobs"])")).logprobs.wanted);
  EXPECT_EQ(parse(ask(R"("top_logprobs":3)")).logprobs.top, 3u);
  EXPECT_FALSE(parse(ask(R"("include":["reasoning.encrypted_content"])")).logprobs.wanted);
}

TEST(OpenAiResponsesRequest, UnknownFieldsAreIgnored) {
  EXPECT_NO_THROW(parse(ask(
      R"("client_metadata":{"a":1},"prompt_cache_key":"k","service_tier":"auto","safety_identifier":"x","n":3,
         "truncation":"auto","stream_options":{"include_obfuscation":false},"background":false,"conversation":null,
         "include":["web_search_call.action.sources"],"max_tool_calls":4,"metadata":{"a":"b"},"user":"u")")));
}

TEST(OpenAiResponsesRequest, ComplaintsNameTheField) {
  EXPECT_EQ(problem("{").code, "invalid_json");
  EXPECT_EQ(problem("{}").param, "input");
  EXPECT_EQ(problem(R"({"input":7})").param, "input");
  EXPECT_EQ(problem(R"({"input":[]})").param, "input");
  EXPECT_EQ(problem(items(R"("a")")).param, "input[0]");
  EXPECT_EQ(problem(items(R"({})")).param, "input[0].type");
  EXPECT_EQ(problem(items(R"({"role":"robot","content":"x"})")).param, "input[0].role");
  EXPECT_EQ(problem(items(R"({"type":"message","content":"x"})")).param, "input[0].role");
  EXPECT_EQ(problem(items(R"({"type":"function_call","call_id":"c"})")).param, "input[0].name");
  EXPECT_EQ(problem(items(R"({"role":"user","content":"a"},{"type":"function_call_output","output":"x"})")).param,
            "input[1].call_id");
  EXPECT_EQ(problem(items(R"({"type":"function_call_output","call_id":"c","output":7})")).param, "input[0].output");
  EXPECT_EQ(problem(items(R"({"role":"user","content":[{"type":"input_text","text":"a"},
                                                       {"type":"input_image","image_url":"data:"}]})"))
                .param,
            "input[0].content[1]");
  EXPECT_EQ(problem(items(R"({"role":"user","content":[{"type":"input_file","file_id":"f"}]})")).param,
            "input[0].content[0]");
  EXPECT_EQ(problem(items(R"({"type":"reasoning","content":"x"})")).param, "input[0].content");
  EXPECT_EQ(problem(ask(R"("instructions":7)")).param, "instructions");
  EXPECT_EQ(problem(ask(R"("max_output_tokens":-1)")).param, "max_output_tokens");
  EXPECT_EQ(problem(ask(R"("tools":{})")).param, "tools");
  EXPECT_EQ(problem(ask(R"("tools":[{"type":"function"}])")).param, "tools[0].name");
  EXPECT_EQ(problem(ask(R"("tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}])")).param,
            "tools[1]");
  EXPECT_EQ(problem(ask(R"("include":7)")).param, "include");
  EXPECT_EQ(problem(ask(R"("temperature":3)")).param, "temperature");
}

TEST(OpenAiResponsesRequest, WhatNeedsAServerThatKeepsThings) {
  for (const char* field : {R"("background":true)", R"("conversation":"conv_1")", R"("prompt":{"id":"p"})",
                            R"("previous_response_id":"resp_1")"}) {
    const Problem refused = problem(ask(field));
    EXPECT_EQ(refused.code, "unsupported_parameter") << field;
    EXPECT_EQ(status_of(refused.refusal), 400u);
    EXPECT_THAT(field, testing::HasSubstr(refused.param));
  }
}

}  // namespace
}  // namespace carat::server
