// OpenAI's chat completions: what a request becomes.
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

// The problem a body is refused with.
Problem problem_of(const std::string& body) {
  try {
    parse_openai_chat(body);
  } catch (const ApiError& error) {
    return error.problem();
  }
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

TEST(OpenAiChatRequest, WhatIsNotGivenStaysOpen) {
  const GenerationRequest request = parse_openai_chat(chat(""));
  ASSERT_TRUE(request.conversation.has_value());
  ASSERT_EQ(request.conversation->messages.size(), 1u);
  EXPECT_EQ(request.conversation->messages[0].content.joined(), "Hi.");
  EXPECT_FALSE(request.sampling.temperature.has_value());
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_FALSE(request.thinking.is_on.has_value());
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.choices, 1u);
}

TEST(OpenAiChatRequest, FieldsByAllTheirNames) {
  const GenerationRequest request = parse_openai_chat(chat(
      R"("model":"gpt-4o","max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_k":-1,"repetition_penalty":1.1,
         "seed":3,"stop":["a","b"],"n":2,"stream":true,"stream_options":{"include_usage":true},"top_p":1,
         "prompt_cache_key":"k","cache_salt":"s","logit_bias":{"5":-100,"6":2},"ignore_eos":true,"min_tokens":4)"));
  EXPECT_EQ(request.model, "gpt-4o");
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 0u);
  EXPECT_EQ(request.sampling.repeat_penalty, 1.1);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_THAT(request.stops, testing::ElementsAre("a", "b"));
  EXPECT_EQ(request.choices, 2u);
  EXPECT_TRUE(request.stream && request.include_usage && request.ignore_eos);
  EXPECT_EQ(request.affinity, "k");
  EXPECT_EQ(request.cache_salt, "s");
  ASSERT_EQ(request.sampling.bias.size(), 2u);
  EXPECT_EQ(std::get<text::TokenId>(request.sampling.bias[0].first), 5);
  EXPECT_TRUE(std::isinf(request.sampling.bias[0].second));
  EXPECT_EQ(request.min_tokens, 4u);
}

TEST(OpenAiChatRequest, UnknownFieldsAreIgnored) {
  EXPECT_NO_THROW(
      parse_openai_chat(chat(R"("store":false,"metadata":{"a":1},"client_metadata":[],"verbosity":"low")")));
}

TEST(OpenAiChatRequest, ComplaintsNameTheField) {
  EXPECT_EQ(problem_of("{").code, "invalid_json");
  EXPECT_EQ(problem_of("[]").message, "the body must be a JSON object, not a list");
  EXPECT_EQ(problem_of(R"({"messages":[]})").param, "messages");
  EXPECT_EQ(problem_of(chat(R"("temperature":3)")).param, "temperature");
  EXPECT_EQ(problem_of(chat(R"("temperature":"hot")")).param, "temperature");
  EXPECT_EQ(problem_of(chat(R"("max_tokens":1.5)")).param, "max_tokens");
  EXPECT_EQ(problem_of(chat(R"("temperature":1e999)")).code, "invalid_json");
  EXPECT_EQ(problem_of(chat(R"("tools":[{"type":"function","function":{"name":"a b"}}])")).param,
            "tools[0].function.name");
  EXPECT_EQ(problem_of(chat(R"("tool_choice":"required")")).param, "tool_choice");
  EXPECT_EQ(problem_of(chat(R"("guided_regex":"a","response_format":{"type":"json_object"})")).param, "guided_regex");
  EXPECT_EQ(problem_of(chat(R"("response_format":{"type":"json_schema"})")).param,
            "response_format.json_schema.schema");
  EXPECT_EQ(problem_of(chat(R"("top_logprobs":3)")).param, "top_logprobs");
  const std::string image =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]})";
  EXPECT_EQ(problem_of(image).param, "messages[0].content[1]");
  EXPECT_EQ(problem_of(std::string(100000, '[')).code, "invalid_json");
}

TEST(OpenAiChatRequest, AForcedCallNamesItsTool) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}])";
  GenerationRequest request = parse_openai_chat(
      chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":false)"));
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(request.tool_choice.allowed, testing::ElementsAre("g"));
  EXPECT_FALSE(request.tool_choice.is_parallel);
  EXPECT_EQ(request.conversation->tools.size(), 2u) << "the prompt keeps all tools, or its prefix would change";
  EXPECT_EQ(problem_of(chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})")).param,
            "tool_choice");
}

TEST(OpenAiChatRequest, Thinking) {
  EXPECT_EQ(parse_openai_chat(chat(R"("reasoning_effort":"none")")).thinking.is_on, false);
  EXPECT_EQ(parse_openai_chat(chat(R"("reasoning_effort":"low")")).thinking.budget, 1024u);
  EXPECT_EQ(parse_openai_chat(chat(R"("chat_template_kwargs":{"enable_thinking":true})")).thinking.is_on, true);
  EXPECT_EQ(parse_openai_chat(chat(R"("thinking_token_budget":0)")).thinking.is_on, false);
}

TEST(OpenAiChatRequest, ConversationsAreBroughtIntoShape) {
  const GenerationRequest request = parse_openai_chat(R"({"messages":[
    {"role":"system","content":"A"},{"role":"developer","content":"B"},{"role":"user","content":"q"},
    {"role":"system","content":"C"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{bad"}}]},
    {"role":"tool","tool_call_id":"1","content":"r"},{"role":"tool","tool_call_id":"9","name":"g","content":"s"},
    {"role":"assistant","content":""},{"role":"user","content":"again"}]})");
  const auto& messages = request.conversation->messages;
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[0].content.joined(), "A\n\nB");
  EXPECT_EQ(messages[2].role, Role::kUser);
  EXPECT_EQ(messages[2].content.joined(), "C");
  EXPECT_EQ(messages[3].tool_calls[0].arguments, R"({"_raw":"{bad"})");
  EXPECT_EQ(messages[4].role, Role::kTool);
  EXPECT_EQ(messages[5].role, Role::kUser);
  EXPECT_EQ(messages[5].content.joined(), "Result of g: s");
  EXPECT_EQ(messages[6].content.joined(), "again");
}

TEST(OpenAiChatRequest, AGrammarOfACustomToolIsNotEnforcedAndANoteSaysSo) {
  const GenerationRequest request = parse_openai_chat(
      chat(R"("tools":[{"type":"custom","custom":{"name":"p","format":{"type":"grammar","grammar":{}}}}])"));
  EXPECT_THAT(request.notes, testing::ElementsAre(testing::HasSubstr("tools[0].custom.format")));
}

TEST(OpenAiChatRequest, FunctionsInTheirOldForm) {
  const std::string functions = R"("functions":[{"name":"f","parameters":{"type":"object"}},{"name":"g"}])";
  const GenerationRequest request = parse_openai_chat(chat(functions + R"(,"function_call":{"name":"g"})"));
  EXPECT_EQ(request.conversation->tools.size(), 2u);
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(request.tool_choice.allowed, testing::ElementsAre("g"));
  EXPECT_FALSE(request.tool_choice.is_parallel) << "the old form has room for one call";
  EXPECT_EQ(parse_openai_chat(chat(functions + R"(,"function_call":"none")")).tool_choice.mode,
            ToolChoice::Mode::kNone);
  EXPECT_EQ(problem_of(chat(functions + R"(,"function_call":{"name":"h"})")).param, "function_call");
  const GenerationRequest history = parse_openai_chat(R"({"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
    {"role":"function","name":"f","content":"r"}]})");
  ASSERT_EQ(history.conversation->messages.size(), 3u);
  EXPECT_EQ(history.conversation->messages[2].role, Role::kTool);
}

TEST(OpenAiChatRequest, ToolChoiceInAllItsForms) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":)";
  const auto choice = [&](const std::string& wish) { return parse_openai_chat(chat(tools + wish)).tool_choice; };
  EXPECT_EQ(choice(R"("auto")").mode, ToolChoice::Mode::kAuto);
  EXPECT_EQ(choice(R"("none")").mode, ToolChoice::Mode::kNone);
  EXPECT_EQ(choice(R"("required")").mode, ToolChoice::Mode::kRequired);
  EXPECT_TRUE(choice(R"("required")").allowed.empty());
  const ToolChoice some = choice(R"({"type":"allowed_tools","allowed_tools":{"mode":"required",
      "tools":[{"type":"function","function":{"name":"g"}}]}})");
  EXPECT_EQ(some.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(some.allowed, testing::ElementsAre("g"));
  EXPECT_EQ(choice(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})").mode,
            ToolChoice::Mode::kNone);
  EXPECT_EQ(
      problem_of(chat(tools + R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})")).param,
      "tool_choice");
  EXPECT_EQ(
      problem_of(chat(tools + R"({"type":"allowed_tools","allowed_tools":{"tools":[{"function":{"name":"h"}}]}})"))
          .param,
      "tool_choice.allowed_tools.tools[0]");
}

TEST(OpenAiChatRequest, EveryWayToSayWhatTheAnswerMustMatch) {
  const auto format = [](const std::string& rest) { return parse_openai_chat(chat(rest)).format; };
  using Kind = AnswerFormat::Kind;
  EXPECT_EQ(format(R"("response_format":{"type":"text"})").kind, Kind::kText);
  EXPECT_EQ(format(R"("response_format":{"type":"json_object"})").kind, Kind::kJsonObject);
  const AnswerFormat nested =
      format(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}})");
  EXPECT_EQ(nested.kind, Kind::kJsonSchema);
  EXPECT_EQ(nested.source, R"({"type":"object"})");
  EXPECT_EQ(nested.param, "response_format.json_schema.schema");
  EXPECT_EQ(format(R"("response_format":{"type":"json_schema","schema":{}})").kind, Kind::kJsonSchema);
  EXPECT_EQ(format(R"("response_format":{"type":"json_object","schema":{}})").kind, Kind::kJsonSchema);
  EXPECT_EQ(format(R"("json_schema":{"type":"object"})").kind, Kind::kJsonSchema);
  EXPECT_EQ(format(R"("grammar":"root ::= \"a\"")").kind, Kind::kGbnf);
  EXPECT_EQ(format(R"("guided_json":"{\"type\":\"object\"}")").source, R"({"type":"object"})");
  EXPECT_EQ(format(R"("guided_regex":"a+")").kind, Kind::kRegex);
  EXPECT_THAT(format(R"("guided_choice":["a","b"])").choices, testing::ElementsAre("a", "b"));
  EXPECT_EQ(format(R"("guided_grammar":"root ::= \"a\"")").kind, Kind::kGbnf);
  EXPECT_EQ(format(R"("structured_outputs":{"json":{"type":"object"}})").kind, Kind::kJsonSchema);
  EXPECT_EQ(format(R"("structured_outputs":{"regex":"a+"})").param, "structured_outputs.regex");
  EXPECT_EQ(format(R"("structured_outputs":{"choice":["a"]})").kind, Kind::kChoice);
  EXPECT_EQ(format(R"("structured_outputs":{"grammar":"root ::= \"a\""})").kind, Kind::kGbnf);
  EXPECT_EQ(format(R"("structured_outputs":{"json_object":true})").kind, Kind::kJsonObject);
  EXPECT_EQ(problem_of(chat(R"("guided_json":"{")")).param, "guided_json");
  EXPECT_EQ(problem_of(chat(R"("guided_choice":[])")).param, "guided_choice");
  EXPECT_EQ(problem_of(chat(R"("response_format":{"type":"xml"})")).param, "response_format.type");
  EXPECT_EQ(problem_of(chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":7}})")).param,
            "response_format.json_schema.schema");
  EXPECT_EQ(problem_of(chat(R"("structured_outputs":{"regex":"a","choice":["a"]})")).param,
            "structured_outputs.choice");
}

TEST(OpenAiChatRequest, BiasesInBothForms) {
  const auto bias = [](const std::string& value) {
    return parse_openai_chat(chat(R"("logit_bias":)" + value)).sampling.bias;
  };
  EXPECT_EQ(bias(R"({"5":-100,"6":100,"7":1.5})").size(), 3u);
  const auto list = bias(R"([[5,false],["word",-2],[6,100]])");
  EXPECT_TRUE(std::isinf(list[0].second));
  EXPECT_EQ(std::get<std::string>(list[1].first), "word");
  EXPECT_EQ(list[1].second, -2.0f);
  EXPECT_GT(list[2].second, 1000.0f);
  EXPECT_EQ(problem_of(chat(R"("logit_bias":{"a":1})")).param, "logit_bias[\"a\"]");
  EXPECT_EQ(problem_of(chat(R"("logit_bias":{"5":101})")).param, "logit_bias[\"5\"]");
  EXPECT_EQ(problem_of(chat(R"("logit_bias":[[5]])")).param, "logit_bias[0]");
  EXPECT_EQ(problem_of(chat(R"("logit_bias":[[-5,1]])")).param, "logit_bias[0]");
  EXPECT_EQ(problem_of(chat(R"("logit_bias":7)")).param, "logit_bias");
}

TEST(OpenAiChatRequest, WhatElseItMaySay) {
  const GenerationRequest request = parse_openai_chat(
      chat(R"("reasoning_format":"none","prediction":{"type":"content","content":[{"type":"text","text":"p"}]},
              "metadata":{"user_id":"me"},"user":"u","seed":-1,"max_tokens":0,"stop_token_ids":[4,5],"priority":-3,
              "sse_ping_interval":-1,"cache_prompt":false,"return_progress":true,"return_token_ids":true)"));
  EXPECT_TRUE(request.thoughts_in_answer);
  EXPECT_EQ(request.prediction, "p");
  EXPECT_EQ(request.affinity, "me");
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_EQ(request.max_tokens, 0u);
  EXPECT_THAT(request.stop_tokens, testing::ElementsAre(4, 5));
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.ping_seconds, -1.0);
  EXPECT_FALSE(request.cache_prompt);
  EXPECT_TRUE(request.return_progress && request.return_tokens);
  EXPECT_EQ(problem_of(chat(R"("modalities":["text","audio"])")).param, "modalities");
  EXPECT_EQ(problem_of(chat(R"("lora":[{"id":0}])")).param, "lora");
  EXPECT_EQ(problem_of(chat(R"("continue_final_message":true)")).param, "continue_final_message");
  EXPECT_EQ(problem_of(chat(R"("continue_final_message":true,"add_generation_prompt":true)")).param,
            "continue_final_message");
  const GenerationRequest continued = parse_openai_chat(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"continue_final_message":true})");
  EXPECT_TRUE(continued.continue_final);
}

TEST(OpenAiChatRequest, CustomToolsBecomeFunctionsWithAText) {
  const ParsedRequest request = read_openai_chat(chat(
      R"("tools":[{"type":"custom","custom":{"name":"patch","description":"d","format":{"type":"text"}}}],
         "tool_choice":{"type":"custom","custom":{"name":"patch"}})"));
  const json tool = json::parse(request.generation.conversation->tools[0].json)["function"];
  EXPECT_EQ(tool["name"], "patch");
  EXPECT_EQ(tool["parameters"]["properties"]["input"]["type"], "string");
  EXPECT_THAT(request.generation.tool_choice.allowed, testing::ElementsAre("patch"));
  EXPECT_TRUE(request.generation.notes.empty());
  const auto reply = request.make_reply(kFacts, {.id = "chatcmpl-1"});
  std::string out;
  reply->on(CallMade{0, "call_a", "patch", R"({"input":"*** x"})"}, out);
  reply->on(ChoiceEnded{.finish = Finish::kToolCalls}, out);
  reply->on(Ended{}, out);
  const json answer = json::parse(reply->response().body);
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0],
            json({{"id", "call_a"}, {"type", "custom"}, {"custom", {{"name", "patch"}, {"input", "*** x"}}}}));
  // What clients send back.
  const GenerationRequest next = parse_openai_chat(R"({"messages":[{"role":"user","content":"q"},
    {"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{"name":"patch","input":"y"}}]}]})");
  EXPECT_EQ(next.conversation->messages[1].tool_calls[0].arguments, R"({"input":"y"})");
}

}  // namespace
}  // namespace carat::server
