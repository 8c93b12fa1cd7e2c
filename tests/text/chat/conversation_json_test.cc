#include "text/chat/conversation_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace carat::text {
namespace {

std::string error_of(std::string_view json) {
  try {
    parse_conversation(json, "chat.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    return error.what();
  }
  ADD_FAILURE() << json;
  return "";
}

TEST(ConversationJson, ReadsWhatTheApiSends) {
  const Conversation chat = parse_conversation(
      R"({"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"reasoning_content":"c","tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
        {"id":"2","function":{"name":"g","arguments":{"y":[2]}}},{"function":{"name":"h"}}]},
      {"role":"tool","tool_call_id":"1","content":"d"},{"role":"tool","tool_call_id":"2","name":"g","content":{"e":1}},
      {"role":"tool"}],"tools":[{"type":"function","function":{"name":"f"}},{"name":"g","parameters":{}}]})",
      "chat.json");
  ASSERT_EQ(chat.messages.size(), 6u);
  EXPECT_EQ(chat.messages[0].role, Role::kDeveloper);
  EXPECT_TRUE(chat.messages[1].content.is_list());
  EXPECT_EQ(chat.messages[1].content.joined(), "b");
  EXPECT_EQ(chat.messages[2].reasoning, "c");
  EXPECT_TRUE(chat.messages[2].content.empty());
  ASSERT_EQ(chat.messages[2].tool_calls.size(), 3u);
  EXPECT_EQ(chat.messages[2].tool_calls[0].arguments, R"({"x":1})");
  EXPECT_EQ(chat.messages[2].tool_calls[1].arguments, R"({"y":[2]})");
  EXPECT_EQ(chat.messages[2].tool_calls[2].arguments, "");
  EXPECT_EQ(chat.messages[3].content.joined(), "d");
  EXPECT_EQ(chat.messages[4].result_json, R"({"e":1})");
  EXPECT_EQ(chat.messages[4].tool_name, "g");
  EXPECT_EQ(chat.messages[5].result_json, "null");
  ASSERT_EQ(chat.tools.size(), 2u);
  EXPECT_EQ(chat.tools[1].name, "g");
  EXPECT_EQ(chat.tools[1].json, R"({"type":"function","function":{"name":"g","parameters":{}}})");
}

TEST(ConversationJson, WritesWhatItReads) {
  const std::string_view json =
      R"({"messages":[{"role":"system","content":[{"type":"text","text":"a\n"}]},{"role":"user","content":"\"b\""},
      {"role":"assistant","content":"","reasoning":"c","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":3}],"tools":[{"name":"f"}]})";
  const std::string written = conversation_to_json(parse_conversation(json, "x"));
  EXPECT_EQ(conversation_to_json(parse_conversation(written, "x")), written);
  EXPECT_NE(written.find("\"reasoning_content\": \"c\""), std::string::npos) << written;
}

TEST(ConversationJson, ErrorsNameTheMessage) {
  EXPECT_EQ(error_of("{"), "chat.json: no valid JSON at byte 2");
  EXPECT_EQ(error_of("{}"), "chat.json: \"messages\" must be a JSON list");
  EXPECT_EQ(error_of("[]"), "a chat needs at least one message");
  EXPECT_EQ(error_of(R"([{"role":"robot"}])"),
            "chat.json: message 0: \"role\" must be one of system, developer, user, assistant, tool");
  EXPECT_EQ(error_of(R"([{"role":"user","content":3}])"),
            "chat.json: message 0: \"content\" must be a string or a list of parts");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
            "chat.json: message 0: only text parts {\"type\": \"text\", \"text\": ...} are understood");
  EXPECT_EQ(error_of(R"([{"role":"user","content":"a"},{"role":"tool","content":"b"}])"),
            "message 1: a tool result without a tool call before it");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])"),
            "message 0: the arguments of the call of f must be a JSON object");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])"),
            "message 0: the arguments of the call of f: no valid JSON at byte 2");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])"), "message 0: a tool call without a name");
  EXPECT_EQ(error_of(R"([{"role":"user","content":"a","reasoning":"b"}])"),
            "message 0: only the assistant thinks and calls tools, not the user");
}

TEST(ConversationJson, ToolsNeedANameAndASchema) {
  const auto tools_error = [](std::string_view json) -> std::string {
    try {
      parse_tools(json, "tools.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(tools_error("3"), "tools.json: the tools must be a JSON list");
  EXPECT_EQ(tools_error("[{}]"),
            "tools.json: tool 0 has no name: a tool is {\"type\": \"function\", \"function\": {\"name\": ...}}");
  EXPECT_EQ(tools_error(R"([{"name":"f","parameters":[]}])"),
            "tools.json: tool 0 (f): \"parameters\" must be a JSON schema, an object");
  EXPECT_EQ(tools_error(R"([{"name":"f"},{"name":"f"}])"), "tools.json: two tools have the name f");
  EXPECT_EQ(parse_tools(R"({"name":"f"})", "tools.json").size(), 1u);
}

}  // namespace
}  // namespace carat::text
