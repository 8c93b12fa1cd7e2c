// Anthropic's messages: what a request becomes, and what the events of its answer become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/common.h"
#include "server/api/anthropic/request.h"
#include "text/chat/chat_format.h"

namespace carat::server {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using text::Role;

const ServerFacts kFacts{.model_id = "demo", .created = 86400.0, .context = 4096, .name = "Demo"};

// A body with one user message; `rest` are further fields.
std::string body_with(const std::string& rest) {
  return R"({"messages":[{"role":"user","content":"Hi."}])" + (rest.empty() ? "" : "," + rest) + "}";
}
std::string body_of(const std::string& messages, const std::string& rest = "") {
  return R"({"max_tokens":9,"messages":[)" + messages + "]" + (rest.empty() ? "" : "," + rest) + "}";
}
const std::string kTools = R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g"}])";

GenerationRequest parse(const std::string& body) { return read_anthropic_messages(body).generation; }

Problem problem_of(const std::string& body) {
  try {
    read_anthropic_messages(body);
  } catch (const ApiError& error) {
    return error.problem();
  }
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

std::string rendered(const std::string& body) {
  std::string text;
  for (const text::PromptPiece& piece : text::render_chat(*parse(body).conversation, {})) text += piece.text;
  return text;
}

// The data of each event; its name must be its type.
std::vector<json> stream_of(const std::string& bytes) {
  std::vector<json> events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t line = bytes.find('\n', at);
    const size_t end = bytes.find("\n\n", at);
    const std::string event = bytes.substr(at, line - at);
    const std::string data = bytes.substr(line + 1, end - line - 1);
    EXPECT_EQ(event.rfind("event: ", 0), 0u) << event;
    EXPECT_EQ(data.rfind("data: ", 0), 0u) << data;
    events.push_back(json::parse(data.substr(6)));
    EXPECT_EQ(events.back()["type"], event.substr(7));
    at = end + 2;
  }
  return events;
}

std::vector<json> streamed(const std::string& rest, const std::vector<Event>& events) {
  const auto reply =
      read_anthropic_messages(body_with(R"("stream":true,"model":"m")" + (rest.empty() ? "" : "," + rest)))
          .make_reply(kFacts, {.id = "msg_1", .created = 7.0, .request_id = "req_1"});
  EXPECT_TRUE(reply->is_streamed());
  EXPECT_EQ(reply->stream_type(), "text/event-stream");
  EXPECT_THAT(reply->headers(), ElementsAre(std::pair<std::string, std::string>("request-id", "req_1")));
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  return stream_of(out);
}

Response whole(const std::string& rest, const std::vector<Event>& events) {
  const auto reply =
      read_anthropic_messages(body_with(rest)).make_reply(kFacts, {.id = "msg_1", .request_id = "req_1"});
  EXPECT_FALSE(reply->is_streamed());
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  EXPECT_EQ(out, "");
  return reply->response();
}

std::vector<std::string> types_of(const std::vector<json>& events) {
  std::vector<std::string> types;
  for (const json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(AnthropicRequest, WhatIsNotGiven) {
  const GenerationRequest request = parse(body_with(""));
  ASSERT_EQ(request.conversation->messages.size(), 1u);
  EXPECT_EQ(request.max_tokens, 4096u);
  EXPECT_EQ(request.thinking.is_on, false);
  EXPECT_FALSE(request.sampling.temperature || request.sampling.top_p || request.sampling.top_k);
  EXPECT_FALSE(request.stream || request.continue_final);
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kText);
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kAuto);
  EXPECT_TRUE(request.tool_choice.is_parallel);
}

TEST(AnthropicRequest, FieldsByTheirNames) {
  const ParsedRequest parsed = read_anthropic_messages(body_with(
      R"("model":"claude-opus-4-8","max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":5,"stream":true,
         "stop_sequences":["a","","b"],"service_tier":"auto","context_management":{"edits":[]},"container":"x",
         "speed":"fast","betas":[],"cache_control":{"type":"ephemeral"},"metadata":{"user_id":"someone"})"));
  const GenerationRequest& request = parsed.generation;
  EXPECT_EQ(request.model, "claude-opus-4-8");
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 5u);
  EXPECT_THAT(request.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.affinity, "someone");
  EXPECT_EQ(parsed.call_id_prefix, "toolu_");
  EXPECT_EQ(parse(body_with(R"("top_k":-1)")).sampling.top_k, 0u);
}

TEST(AnthropicRequest, TheSessionIsTheAffinity) {
  const auto affinity = [](const std::string& metadata) {
    return parse(body_with("\"metadata\":" + metadata)).affinity;
  };
  EXPECT_EQ(affinity(R"({"user_id":"{\"device_id\":\"d\",\"session_id\":\"s\"}"})"), "s");
  EXPECT_EQ(affinity(R"({"user_id":"{\"session_id\":5}"})"), "{\"session_id\":5}");
  EXPECT_EQ(affinity(R"({"user_id":5})"), "");
  EXPECT_EQ(affinity("[]"), "");
  EXPECT_EQ(affinity("{\"user_id\":\"" + std::string(1000, '[') + "\"}"), std::string(1000, '['));
}

TEST(AnthropicRequest, Thinking) {
  const auto thinking = [](const std::string& rest) { return parse(body_with(rest)).thinking; };
  EXPECT_EQ(thinking(R"("thinking":{"type":"disabled"})").is_on, false);
  EXPECT_EQ(thinking(R"("output_config":{"effort":"high"})").is_on, false);
  const ThinkingWishes enabled = thinking(R"("max_tokens":3000,"thinking":{"type":"enabled","budget_tokens":2000})");
  EXPECT_EQ(enabled.is_on, true);
  EXPECT_EQ(enabled.budget, 2000u);
  const ThinkingWishes adaptive = thinking(R"("thinking":{"type":"adaptive"})");
  EXPECT_EQ(adaptive.is_on, true);
  EXPECT_FALSE(adaptive.budget.has_value());
  EXPECT_EQ(thinking(R"("thinking":{"type":"adaptive"},"output_config":{"effort":"low"})").budget, 1024u);
  EXPECT_FALSE(thinking(R"("thinking":{"type":"adaptive"},"output_config":{"effort":"max"})").budget.has_value());
  // Without max_tokens there is room for the answer beside the thoughts.
  EXPECT_EQ(parse(body_with(R"("thinking":{"type":"enabled","budget_tokens":8000})")).max_tokens, 12096u);

  EXPECT_EQ(problem_of(body_with(R"("thinking":{"type":"enabled"})")).param, "thinking.budget_tokens");
  EXPECT_EQ(problem_of(body_with(R"("thinking":{"type":"enabled","budget_tokens":1000})")).param,
            "thinking.budget_tokens");
  EXPECT_EQ(problem_of(body_with(R"("max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":2000})")).param,
            "thinking.budget_tokens");
  EXPECT_EQ(problem_of(body_with(R"("thinking":{"type":"always"})")).param, "thinking.type");
  EXPECT_EQ(problem_of(body_with(R"("output_config":{"effort":"much"})")).param, "output_config.effort");
}

TEST(AnthropicRequest, Format) {
  const GenerationRequest request =
      parse(body_with(R"("output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})"));
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(request.format.source, R"({"type":"object"})");
  EXPECT_EQ(request.format.param, "output_config.format.schema");
  EXPECT_EQ(parse(body_with(R"("output_format":{"type":"json_schema","schema":{}})")).format.kind,
            AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(problem_of(body_with(R"("output_config":{"format":{"type":"json_object"}})")).param,
            "output_config.format.type");
  EXPECT_EQ(problem_of(body_with(R"("output_config":{"format":{"type":"json_schema"}})")).param,
            "output_config.format.schema");
}

TEST(AnthropicRequest, Tools) {
  const GenerationRequest request = parse(body_with(
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"},
                   "defer_loading":true,"strict":true},
                  {"type":"custom","name":"g","input_schema":{}},
                  {"type":"web_search_20250305","name":"web_search"},{"type":"bash_20250124","name":"bash"},
                  {"type":"memory_20250818","name":"memory","input_schema":{"type":"object"}}])"));
  const std::vector<text::Tool>& tools = request.conversation->tools;
  ASSERT_EQ(tools.size(), 3u);
  EXPECT_EQ(json::parse(tools[0].json),
            json::parse(R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},
                            "strict":true}})"));
  EXPECT_EQ(tools[1].name, "g");
  EXPECT_EQ(tools[2].name, "memory");
  EXPECT_EQ(request.notes.size(), 2u);

  EXPECT_EQ(problem_of(body_with(R"("tools":[{"name":"f"},{"type":"x"},{"name":"f"}])")).param, "tools[2]");
  EXPECT_EQ(problem_of(body_with(R"("tools":[{"type":"x"},{"name":"a b"}])")).param, "tools[1].name");
  EXPECT_EQ(problem_of(body_with(R"("tools":[{"name":"f","input_schema":"{}"}])")).param, "tools[0].input_schema");
  EXPECT_EQ(problem_of(body_with(R"("tools":[{"name":"f","description":7}])")).param, "tools[0].description");
  std::string many = R"("tools":[{})";
  for (int i = 0; i < 5000; ++i) many += ",{}";
  EXPECT_EQ(problem_of(body_with(many + "]")).param, "tools");
}

TEST(AnthropicRequest, ToolChoice) {
  const auto choice = [](const std::string& wish) {
    return parse(body_with(kTools + ",\"tool_choice\":" + wish)).tool_choice;
  };
  EXPECT_EQ(choice(R"({"type":"auto"})").mode, ToolChoice::Mode::kAuto);
  EXPECT_EQ(choice(R"({"type":"any"})").mode, ToolChoice::Mode::kRequired);
  EXPECT_EQ(choice(R"({"type":"none"})").mode, ToolChoice::Mode::kNone);
  const ToolChoice named = choice(R"({"type":"tool","name":"g","disable_parallel_tool_use":true})");
  EXPECT_EQ(named.mode, ToolChoice::Mode::kRequired);
  EXPECT_THAT(named.allowed, ElementsAre("g"));
  EXPECT_FALSE(named.is_parallel);
  EXPECT_EQ(problem_of(body_with(R"("tool_choice":{"type":"any"})")).param, "tool_choice");
  EXPECT_EQ(problem_of(body_with(kTools + R"(,"tool_choice":{"type":"tool","name":"h"})")).param, "tool_choice.name");
  EXPECT_EQ(problem_of(body_with(kTools + R"(,"tool_choice":{"type":"tool"})")).param, "tool_choice.name");
  EXPECT_EQ(problem_of(body_with(kTools + R"(,"tool_choice":{"type":"some"})")).param, "tool_choice.type");
  EXPECT_EQ(problem_of(body_with(kTools + R"(,"tool_choice":"any")")).param, "tool_choice");
}

TEST(AnthropicRequest, BlocksOfTextStayApart) {
  const auto messages =
      parse(body_of(R"({"role":"user","content":[{"type":"text","text":"a "},{"type":"text","text":" b"}]})"))
          .conversation->messages;
  EXPECT_THAT(messages[0].content.parts(), ElementsAre("a ", " b"));
}

TEST(AnthropicRequest, SystemIsJoinedWithoutWhatChangesEachTime) {
  const auto first = [](const std::string& system) {
    const auto messages = parse(body_with("\"system\":" + system)).conversation->messages;
    return messages[0].role == Role::kSystem ? messages[0].content.joined() : "";
  };
  EXPECT_EQ(first(R"("Be brief.")"), "Be brief.");
  EXPECT_EQ(first(R"([{"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B"}])"),
            "A\nB");
  EXPECT_EQ(first(R"([{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"A"}])"), "A");
  EXPECT_EQ(first(R"("x-anthropic-billing-header: cch=1;\nA")"), "A");
  EXPECT_EQ(first(R"([{"type":"text","text":"x-anthropic-billing-header: cch=1;"}])"), "");
  EXPECT_EQ(first("[]"), "");
}

// A prompt must have the bytes of the one before it as its beginning, or no cache helps.
TEST(AnthropicRequest, PromptsOfOneConversationShareTheirBeginning) {
  const auto prompt = [](const std::string& hash, const std::string& first_mark, const std::string& more) {
    return rendered(body_of(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b")" +
                                first_mark + R"(}]},{"role":"system","content":"agents: x"})" + more,
                            R"("system":[{"type":"text","text":"x-anthropic-billing-header: cch=)" + hash +
                                R"(;"},{"type":"text","text":"You help."}],)" + kTools));
  };
  const std::string mark = R"(,"cache_control":{"type":"ephemeral"})";
  const std::string first = prompt("1", mark, "");
  const std::string second = prompt("2", "",
                                    R"(,{"role":"assistant","content":[
      {"type":"thinking","thinking":"hm","signature":""},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"r")" +
                                        mark + "}]}");
  // The generation prompt of the first is where the model's turn of the second begins.
  EXPECT_EQ(second.rfind(first, 0), 0u) << first << "\n---\n" << second;
}

TEST(AnthropicRequest, AToolLoop) {
  const auto messages = parse(body_of(R"({"role":"user","content":"q"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
      {"type":"redacted_thinking","data":"x"},{"type":"text","text":"Let me see."},
      {"type":"tool_use","id":"t1","name":"f","input":{"b":1,"a":[2]}},
      {"type":"tool_use","id":"t2","name":"g"},{"type":"server_tool_use","id":"s1","name":"web","input":{}},
      {"type":"web_search_tool_result","tool_use_id":"s1","content":[]},{"type":"brand_new","x":1}]},
    {"role":"user","content":[{"type":"text","text":"and?"},
      {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r1"},{"type":"text","text":"r2"}]},
      {"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"no \"g\""},
      {"type":"tool_result","tool_use_id":"t9","content":"lost"},
      {"type":"web_search_tool_result","tool_use_id":"s1","content":[]}]})"))
                            .conversation->messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[1].reasoning, "t");
  EXPECT_THAT(messages[1].content.parts(), ElementsAre("Let me see."));
  ASSERT_EQ(messages[1].tool_calls.size(), 2u);
  EXPECT_EQ(messages[1].tool_calls[0].id, "t1");
  EXPECT_EQ(messages[1].tool_calls[0].arguments, R"({"b":1,"a":[2]})");
  EXPECT_EQ(messages[1].tool_calls[1].arguments, "{}");
  EXPECT_EQ(messages[2].role, Role::kTool);
  EXPECT_EQ(messages[2].tool_call_id, "t1");
  EXPECT_EQ(messages[2].content.joined(), "r1\nr2");
  EXPECT_EQ(messages[3].result_json, R"({"error":"no \"g\""})");
  EXPECT_EQ(messages[4].role, Role::kUser) << "a result without its call";
  EXPECT_EQ(messages[4].content.joined(), "Result of a tool: lost");
  EXPECT_EQ(messages[5].content.joined(), "and?");
}

TEST(AnthropicRequest, DocumentsAreText) {
  const auto parts = parse(body_of(R"({"role":"user","content":[
      {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},
      {"type":"document","source":{"type":"content","content":[{"type":"text","text":"C"}]}},
      {"type":"search_result","title":"S","source":"http://x","content":[{"type":"text","text":"found"}]}, "bare"]})"))
                         .conversation->messages[0]
                         .content.parts();
  EXPECT_THAT(parts, ElementsAre("T\nD", "C", "S\nhttp://x\nfound", "bare"));
}

TEST(AnthropicRequest, TheLastMessageOfTheModelIsContinued) {
  const std::string user = R"({"role":"user","content":"q"})";
  const GenerationRequest request = parse(body_of(user + R"(,{"role":"assistant","content":"{\"a\":"})"));
  EXPECT_TRUE(request.continue_final);
  EXPECT_EQ(request.conversation->messages.back().content.joined(), "{\"a\":");
  EXPECT_FALSE(parse(body_of(user + R"(,{"role":"assistant","content":""})")).continue_final);
  const Problem open =
      problem_of(body_of(user + R"(,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]})"));
  EXPECT_EQ(open.param, "messages");
}

TEST(AnthropicRequest, ComplaintsNameTheBlock) {
  const auto param = [](const std::string& block, const std::string& role = "user") {
    return problem_of(body_of(R"({"role":"user","content":"a"},{"role":")" + role +
                              R"(","content":[{"type":"text","text":"b"},)" + block + "]}"))
        .param;
  };
  EXPECT_EQ(param(R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"eA=="}})"),
            "messages[1].content[1]");
  EXPECT_EQ(param(R"({"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"eA=="}})"),
            "messages[1].content[1]");
  EXPECT_EQ(param(R"({"type":"document"})"), "messages[1].content[1].source");
  EXPECT_EQ(param(R"({"type":"document","source":{"type":"text"}})"), "messages[1].content[1].source.data");
  EXPECT_EQ(param(R"({"type":"container_upload","file_id":"f"})"), "messages[1].content[1]");
  EXPECT_EQ(param(R"({"type":"text"})"), "messages[1].content[1].text");
  EXPECT_EQ(param("5"), "messages[1].content[1]");
  EXPECT_EQ(param(R"({"text":"x"})"), "messages[1].content[1].type");
  EXPECT_EQ(param(R"({"type":"tool_result","content":"x"})"), "messages[1].content[1].tool_use_id");
  EXPECT_EQ(
      param(R"({"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"},{"type":"image"}]})"),
      "messages[1].content[1].content[1]");
  EXPECT_EQ(param(R"({"type":"tool_result","tool_use_id":"t","is_error":"yes"})"), "messages[1].content[1].is_error");
  EXPECT_EQ(param(R"({"type":"tool_use","name":"f"})", "assistant"), "messages[1].content[1].id");
  EXPECT_EQ(param(R"({"type":"tool_use","id":"1","name":""})", "assistant"), "messages[1].content[1].name");
  EXPECT_EQ(param(R"({"type":"thinking"})", "assistant"), "messages[1].content[1].thinking");
  EXPECT_EQ(param("[]", "assistant"), "messages[1].content[1]");
  EXPECT_EQ(param(R"({"type":"image"})", "system"), "messages[1].content[1]");
  EXPECT_EQ(problem_of(body_of(R"({"role":"tool","content":"x"})")).param, "messages[0].role");
  EXPECT_EQ(problem_of(body_of(R"({"role":"user"})")).param, "messages[0].content");
  EXPECT_EQ(problem_of(body_of("\"hi\"")).param, "messages[0]");
  EXPECT_EQ(problem_of(body_with(R"("system":5)")).param, "system");
  EXPECT_EQ(problem_of(body_with(R"("system":[{"type":"text","text":"a"},{"type":"image"}])")).param, "system[1]");
}

TEST(AnthropicRequest, ComplaintsNameTheField) {
  EXPECT_EQ(problem_of("{}").param, "messages");
  EXPECT_EQ(problem_of(R"({"messages":[]})").param, "messages");
  EXPECT_EQ(problem_of(R"({"messages":{}})").param, "messages");
  EXPECT_EQ(problem_of(body_of(R"({"role":"assistant","content":[]})")).param, "messages");
  for (const char* field : {"model", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream",
                            "system", "thinking", "output_config", "tools", "tool_choice"}) {
    for (const char* value : {"{\"a\":[]}", "[{}]", "[[5]]"}) {
      if (std::string(field) == "output_config" && value[0] == '{') continue;  // unknown fields are no error
      const std::string body = body_with("\"" + std::string(field) + "\":" + value);
      try {
        read_anthropic_messages(body);
        ADD_FAILURE() << body;
      } catch (const ApiError& error) {
        EXPECT_EQ(error.problem().refusal, Refusal::kBadRequest);
        EXPECT_EQ(error.problem().param.rfind(field, 0), 0u) << body << " " << error.problem().param;
        EXPECT_NE(error.problem().message.find(field), std::string::npos) << error.problem().message;
      }
    }
  }
  EXPECT_EQ(problem_of(body_with(R"("temperature":1.1)")).param, "temperature");
  EXPECT_EQ(problem_of(body_with(R"("max_tokens":-1)")).param, "max_tokens");
  EXPECT_EQ(problem_of(body_with(R"("stop_sequences":["","","","","","","","","","","","","","","","",""])")).param,
            "stop_sequences");
}

TEST(AnthropicRequest, HostileBodies) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string(100000, '['),
        R"({"messages":)" + std::string(100000, '['), body_with(R"("temperature":1e999)"),
        body_with("\"model\":\"a\0b\""), body_with(R"("model":"\ud800")"), body_with("\"model\":\"\xff\""),
        body_of(R"({"role":"user","content":"a"}) + std::string(1, '\0')")}) {
    EXPECT_EQ(problem_of(body).refusal, Refusal::kBadRequest) << body.substr(0, 60);
  }
  // NUL as an escape is a character like any other.
  EXPECT_EQ(parse(body_of(R"({"role":"user","content":"a\u0000b"})")).conversation->messages[0].content.joined(),
            std::string("a\0b", 3));
}

TEST(AnthropicRequest, CountingNeedsNoLength) {
  const GenerationRequest request = read_anthropic_count(
      body_with(R"("max_tokens":"many","thinking":{"type":"enabled","budget_tokens":5000},"system":"S",)" + kTools));
  EXPECT_EQ(request.conversation->messages.size(), 2u);
  EXPECT_EQ(request.conversation->tools.size(), 2u);
  EXPECT_EQ(request.thinking.is_on, true);
  const Response answer = anthropic_token_count(42, "req_1");
  EXPECT_EQ(answer.body, R"({"input_tokens":42})");
  EXPECT_THAT(answer.headers, ElementsAre(std::pair<std::string, std::string>("request-id", "req_1")));
}

TEST(AnthropicReply, AStreamInItsOrder) {
  const std::vector<json> events =
      streamed("", {Started{.prompt_tokens = 120, .cached_tokens = 96}, ThoughtText{0, "Need "}, ThoughtText{0, "it."},
                    AnswerText{.text = "I "}, AnswerText{.text = ""}, AnswerText{.text = "look."},
                    CallMade{0, "toolu_1", "f", R"({"b":1,"a":"x"})"}, CallMade{0, "toolu_2", "g", ""},
                    ChoiceEnded{.finish = Finish::kToolCalls},
                    Ended{{.prompt_tokens = 120, .cached_tokens = 96, .completion_tokens = 17}}});
  EXPECT_THAT(types_of(events),
              ElementsAre("message_start", "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop",
                          "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"],
            json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],
                            "stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":24,
                            "cache_creation_input_tokens":0,"cache_read_input_tokens":96,"output_tokens":0}})"));
  EXPECT_EQ(events[1]["content_block"], json::parse(R"({"type":"thinking","thinking":"","signature":""})"));
  EXPECT_EQ(events[2]["delta"], json::parse(R"({"type":"thinking_delta","thinking":"Need "})"));
  EXPECT_EQ(events[4]["delta"], json::parse(R"({"type":"signature_delta","signature":""})"));
  EXPECT_EQ(events[6]["content_block"], json::parse(R"({"type":"text","text":""})"));
  EXPECT_EQ(events[8]["delta"], json::parse(R"({"type":"text_delta","text":"look."})"));
  EXPECT_EQ(events[10]["content_block"], json::parse(R"({"type":"tool_use","id":"toolu_1","name":"f","input":{}})"));
  EXPECT_EQ(events[11]["delta"]["type"], "input_json_delta");
  EXPECT_EQ(events[11]["delta"]["partial_json"], R"({"b":1,"a":"x"})");
  EXPECT_EQ(events[14]["delta"]["partial_json"], "{}");
  const std::vector<int> indices = {0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  for (size_t i = 0; i < indices.size(); ++i) EXPECT_EQ(events[i + 1]["index"], indices[i]);
  EXPECT_EQ(events[16]["delta"], json::parse(R"({"stop_reason":"tool_use","stop_sequence":null})"));
  EXPECT_EQ(events[16]["usage"]["output_tokens"], 17);
  EXPECT_EQ(events[16]["usage"]["input_tokens"], 24);
  EXPECT_EQ(events[16]["usage"]["cache_read_input_tokens"], 96);
}

TEST(AnthropicReply, HiddenThoughtsKeepTheirBlock) {
  const std::string rest = R"("thinking":{"type":"adaptive","display":"omitted"})";
  const std::vector<Event> happened = {
      Started{}, ThoughtText{0, "secret"}, ThoughtText{0, "s"}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{}};
  const std::vector<json> events = streamed(rest, happened);
  EXPECT_EQ(json(events).dump().find("secret"), std::string::npos);
  EXPECT_EQ(events[1]["content_block"]["type"], "thinking");
  EXPECT_EQ(events[2]["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[3]["type"], "content_block_stop");
  EXPECT_EQ(events[4]["content_block"]["type"], "text");
  const json content = json::parse(whole(rest, happened).body)["content"];
  EXPECT_EQ(content[0], json::parse(R"({"type":"thinking","thinking":"","signature":""})"));
  EXPECT_EQ(content[1]["text"], "x");
}

TEST(AnthropicReply, AnEmptyAnswerHasNoBlocks) {
  EXPECT_THAT(types_of(streamed("", {Started{}, ChoiceEnded{}, Ended{}})),
              ElementsAre("message_start", "message_delta", "message_stop"));
}

TEST(AnthropicReply, Endings) {
  const auto ending = [](const ChoiceEnded& ended) {
    const json message = json::parse(whole("", {Started{}, ended, Ended{}}).body);
    const json delta = streamed("", {Started{}, ended, Ended{}})[1]["delta"];
    EXPECT_EQ(message["stop_reason"], delta["stop_reason"]);
    EXPECT_EQ(message["stop_sequence"], delta["stop_sequence"]);
    return delta;
  };
  EXPECT_EQ(ending({.finish = Finish::kStop})["stop_reason"], "end_turn");
  EXPECT_EQ(ending({.finish = Finish::kLoop})["stop_reason"], "end_turn");
  EXPECT_EQ(ending({.finish = Finish::kToolCalls})["stop_reason"], "tool_use");
  EXPECT_EQ(ending({.finish = Finish::kLength})["stop_reason"], "max_tokens");
  EXPECT_EQ(ending({.finish = Finish::kContextFull})["stop_reason"], "model_context_window_exceeded");
  const json stopped = ending({.finish = Finish::kStopString, .stopped_by = "END"});
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "END");
  EXPECT_TRUE(ending({.finish = Finish::kStop, .stopped_by = "x"})["stop_sequence"].is_null());
}

TEST(AnthropicReply, AStreamThatFailsEndsWithItsError) {
  const std::vector<json> events = streamed(
      "", {Started{}, AnswerText{.text = "x"}, Failed{{.refusal = Refusal::kFailed, .message = "a pass failed"}},
           AnswerText{.text = "late"}, Ended{}});
  EXPECT_THAT(types_of(events), ElementsAre("message_start", "content_block_start", "content_block_delta", "error"));
  EXPECT_EQ(events[3]["error"], json::parse(R"({"type":"api_error","message":"a pass failed"})"));
  EXPECT_EQ(events[3]["request_id"], "req_1");
}

TEST(AnthropicReply, AFailureBeforeTheStreamIsAResponse) {
  const auto reply = read_anthropic_messages(body_with(R"("stream":true)")).make_reply(kFacts, {.id = "msg_1"});
  std::string out;
  reply->on(Failed{{.refusal = Refusal::kQueueTimeout, .message = "m", .retry_after = 2.0}}, out);
  const Response response = reply->response();
  EXPECT_EQ(response.status, 529u);
  EXPECT_EQ(json::parse(response.body)["error"]["type"], "overloaded_error");
  EXPECT_TRUE(json::parse(response.body)["request_id"].is_null());
}

TEST(AnthropicReply, AWholeAnswer) {
  const Response response =
      whole("", {Started{.prompt_tokens = 120, .cached_tokens = 96}, ThoughtText{0, "a"}, ThoughtText{0, "b"},
                 AnswerText{.text = "c"}, AnswerText{.text = "d"}, CallMade{0, "toolu_1", "f", R"({"b":1,"a":"x"})"},
                 ChoiceEnded{.finish = Finish::kToolCalls},
                 Ended{{.prompt_tokens = 120, .cached_tokens = 96, .completion_tokens = 17}}});
  EXPECT_EQ(response.status, 200u);
  EXPECT_EQ(response.body, R"({"id":"msg_1","type":"message","role":"assistant","model":"demo","content":[)"
                           R"({"type":"thinking","thinking":"ab","signature":""},{"type":"text","text":"cd"},)"
                           R"({"type":"tool_use","id":"toolu_1","name":"f","input":{"b":1,"a":"x"}}],)"
                           R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":24,)"
                           R"("cache_creation_input_tokens":0,"cache_read_input_tokens":96,"output_tokens":17}})");
  EXPECT_THAT(response.headers, ElementsAre(std::pair<std::string, std::string>("request-id", "req_1")));
}

TEST(AnthropicReply, ABadCallIsShownAsText) {
  const std::vector<Event> happened = {Started{}, AnswerText{.text = "a "}, BadCall{0, "call:f{", "cut off"},
                                       ChoiceEnded{}, Ended{}};
  EXPECT_EQ(json::parse(whole("", happened).body)["content"], json::parse(R"([{"type":"text","text":"a call:f{"}])"));
  EXPECT_EQ(streamed("", happened)[3]["delta"]["text"], "call:f{");
}

TEST(AnthropicReply, PingsMayComeBeforeTheMessage) {
  const auto reply = read_anthropic_messages(body_with(R"("stream":true)")).make_reply(kFacts, {.id = "msg_1"});
  std::string out;
  reply->keep_alive(out);
  EXPECT_EQ(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  reply->on(Progress{}, out);
  reply->on(Started{}, out);
  EXPECT_THAT(types_of(stream_of(out)), ElementsAre("ping", "message_start"));
}

TEST(AnthropicModels, TheListAndOneOfThem) {
  const json list = json::parse(anthropic_models(kFacts, "req_1").body);
  EXPECT_EQ(list["data"],
            json::parse(R"([{"type":"model","id":"demo","display_name":"Demo","created_at":"1970-01-02T00:00:00Z"}])"));
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(list["first_id"], "demo");
  EXPECT_EQ(list["last_id"], "demo");
  EXPECT_EQ(json::parse(anthropic_model(kFacts, "").body), list["data"][0]);
}

}  // namespace
}  // namespace carat::server
