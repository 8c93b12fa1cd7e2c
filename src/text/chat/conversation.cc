#include "text/chat/conversation.h"

#include "base/error.h"
#include "text/value_json.h"

namespace carat::text {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kDeveloper:
      return "developer";
    case Role::kUser:
      return "user";
    case Role::kModel:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "";
}

namespace {

void check_call(const ToolCall& call, size_t message) {
  if (call.name.empty()) fail(ErrorCode::kBadArgument, "message {}: a tool call without a name", message);
  if (call.arguments.empty()) return;
  const auto what = fmt::format("message {}: the arguments of the call of {}", message, call.name);
  if (!parse_json(call.arguments, false, what).is_map()) {
    fail(ErrorCode::kBadArgument, "{} must be a JSON object", what);
  }
}

}  // namespace

void check_conversation(const Conversation& conversation) {
  if (conversation.messages.empty()) fail(ErrorCode::kBadArgument, "a chat needs at least one message");
  bool answers_calls = false;  // the messages before this one are a call and perhaps some of its results
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (message.role == Role::kTool) {
      if (!answers_calls) {
        fail(ErrorCode::kBadArgument, "message {}: a tool result without a tool call before it", i);
      }
      if (!message.result_json.empty()) {
        parse_json(message.result_json, false, fmt::format("message {}: the tool result", i));
      }
      continue;
    }
    answers_calls = message.role == Role::kModel && !message.tool_calls.empty();
    if (message.role != Role::kModel && (!message.tool_calls.empty() || !message.reasoning.empty())) {
      fail(ErrorCode::kBadArgument, "message {}: only the assistant thinks and calls tools, not the {}", i,
           role_name(message.role));
    }
    for (const ToolCall& call : message.tool_calls) check_call(call, i);
  }
}

}  // namespace carat::text
