// What conversations of clients become before a template sees them.
#include "server/api/conversation_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/chat/chat_format.h"

namespace carat::server {
namespace {

using text::Content;
using text::Message;
using text::Role;

Message called(const std::string& id, const std::string& name) {
  return {.role = Role::kModel, .tool_calls = {{.id = id, .name = name, .arguments = "{}"}}};
}

Message result(const std::string& id, const std::string& text) {
  return {.role = Role::kTool, .content = text, .tool_call_id = id};
}

// Roles and texts, one message a line.
std::string shape(const std::vector<Message>& messages) {
  std::string lines;
  for (const Message& message : messages) {
    lines += std::string(text::role_name(message.role)) + ": " + message.content.joined();
    for (const text::ToolCall& call : message.tool_calls) lines += call.name + "()";
    lines += "\n";
  }
  return lines;
}

std::string normal_shape(const std::vector<Message>& messages) {
  const text::Conversation conversation = normalised({.messages = messages, .tools = {}});
  EXPECT_NO_THROW(text::check_conversation(conversation));
  return shape(conversation.messages);
}

std::string rendered(const std::vector<Message>& messages) {
  std::string text;
  for (const text::PromptPiece& piece : text::render_chat(normalised({.messages = messages, .tools = {}}), {})) {
    text += piece.text;
  }
  return text;
}

TEST(ConversationRules, LeadingInstructionsBecomeOne) {
  EXPECT_EQ(normal_shape({{Role::kSystem, "A"}, {Role::kDeveloper, "B"}, {Role::kUser, "q"}}),
            "system: A\n\nB\nuser: q\n");
  EXPECT_EQ(normal_shape({{Role::kSystem, ""}, {Role::kUser, "q"}}), "user: q\n");
}

TEST(ConversationRules, LaterInstructionsGoToTheUserMessageThatFollows) {
  EXPECT_EQ(normal_shape({{Role::kUser, "q"}, {Role::kModel, "a"}, {Role::kSystem, "S"}, {Role::kUser, "r"}}),
            "user: q\nassistant: a\nuser: S\n\nr\n");
}

TEST(ConversationRules, AParagraphStaysAParagraphWhereTemplatesTrimParts) {
  const std::string text = rendered(
      {{Role::kUser, "q"}, {Role::kModel, "a"}, {Role::kSystem, "S"}, {Role::kUser, Content::of_parts({"r"})}});
  EXPECT_NE(text.find("S\n\nr"), std::string::npos) << text;
}

// An agent that sends instructions right after the first message repeats them there in its next request, when the
// model's call follows: what was rendered before must stay the beginning of the prompt.
TEST(ConversationRules, InstructionsBeforeTheModelStayWhereTheyAre) {
  const std::vector<Message> first = {{Role::kUser, "q"}, {Role::kSystem, "S"}};
  std::vector<Message> second = first;
  second.push_back(called("1", "f"));
  second.push_back(result("1", "x"));
  EXPECT_EQ(normal_shape(first), "user: q\nuser: S\n");
  EXPECT_EQ(normal_shape(second), "user: q\nuser: S\nassistant: f()\ntool: x\n");
  const std::string before = rendered(first), after = rendered(second);
  EXPECT_EQ(after.rfind(before, 0), 0u) << before << "\n---\n" << after;
}

TEST(ConversationRules, InstructionsDoNotPartACallFromItsResult) {
  EXPECT_EQ(normal_shape({{Role::kUser, "q"}, called("1", "f"), {Role::kSystem, "S"}, result("1", "x")}),
            "user: q\nassistant: f()\ntool: x\nuser: S\n");
}

TEST(ConversationRules, ResultsWithoutTheirCallBecomeTexts) {
  EXPECT_EQ(normal_shape({result("1", "x"), {Role::kUser, "q"}}), "user: Result of a tool: x\nuser: q\n");
  // The call is not the last thing the model did: no template shows such a result.
  EXPECT_EQ(normal_shape({{Role::kUser, "q"}, called("1", "f"), {Role::kModel, "a"}, result("1", "x")}),
            "user: q\nassistant: f()\nassistant: a\nuser: Result of a tool: x\n");
}

TEST(ConversationRules, AnEmptyMessageOfTheModelIsLeftOut) {
  EXPECT_EQ(normal_shape({{Role::kModel, ""}, {Role::kSystem, "S"}, {Role::kUser, "q"}}), "system: S\nuser: q\n");
}

TEST(ConversationRules, ArgumentsAreAlwaysAnObject) {
  EXPECT_EQ(arguments_object(""), "{}");
  EXPECT_EQ(arguments_object(" \n"), "{}");
  EXPECT_EQ(arguments_object(R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(arguments_object("[1]"), R"({"_raw":"[1]"})");
  EXPECT_EQ(arguments_object("{\"a\":\"\x01"), "{\"_raw\":\"{\\\"a\\\":\\\"\\u0001\"}");
  EXPECT_EQ(arguments_object(std::string(100000, '[')).substr(0, 10), R"({"_raw":"[)");
}

// A hundred thousand instructions take no longer than their bytes.
TEST(ConversationRules, ManyInstructionsAreJoinedInOneGo) {
  std::vector<Message> messages(200000, {Role::kSystem, "aaaaaaaaaa"});
  messages.push_back({Role::kUser, "q"});
  EXPECT_EQ(normalised({.messages = std::move(messages), .tools = {}}).messages[0].content.joined().size(),
            200000u * 12 - 2);
}

}  // namespace
}  // namespace carat::server
