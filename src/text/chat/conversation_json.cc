#include "text/chat/conversation_json.h"

#include <array>

#include "base/error.h"
#include "text/value_json.h"

namespace carat::text {

namespace {

// A string field that may be absent or null.
std::string optional_text(const Value& object, std::string_view key, std::string_view what) {
  const Value value = object.get(key);
  if (value.is_undefined() || value.is_none()) return {};
  if (!value.is_string()) fail(ErrorCode::kBadArgument, "{}: \"{}\" must be a string", what, key);
  return value.text();
}

Tool parse_tool(const Value& value, std::string_view what) {
  const bool wrapped = value.get("function").is_map();
  const Value function = wrapped ? value.get("function") : value;
  const Value name = function.get("name");
  if (!name.is_string() || name.text().empty()) {
    fail(ErrorCode::kBadArgument,
         "{} has no name: a tool is {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}", what);
  }
  const Value parameters = function.get("parameters");
  if (!parameters.is_undefined() && !parameters.is_none() && !parameters.is_map()) {
    fail(ErrorCode::kBadArgument, "{} ({}): \"parameters\" must be a JSON schema, an object", what, name.text());
  }
  if (wrapped) return {name.text(), to_compact_json(value)};
  ValueMap wrapper;
  wrapper.set(MarkedText("type", false), Value::string("function", false));
  wrapper.set(MarkedText("function", false), value);
  return {name.text(), to_compact_json(Value::map(std::move(wrapper)))};
}

std::vector<Tool> tools_of(const Value& value, std::string_view what) {
  std::vector<Tool> tools;
  if (value.is_map()) {
    tools.push_back(parse_tool(value, fmt::format("{}: the tool", what)));
    return tools;
  }
  if (!value.is_list()) fail(ErrorCode::kBadArgument, "{}: the tools must be a JSON list", what);
  for (const Value& tool : value.as_list()) {
    tools.push_back(parse_tool(tool, fmt::format("{}: tool {}", what, tools.size())));
    for (size_t i = 0; i + 1 < tools.size(); ++i) {
      if (tools[i].name == tools.back().name) {
        fail(ErrorCode::kBadArgument, "{}: two tools have the name {}", what, tools[i].name);
      }
    }
  }
  return tools;
}

Role parse_role(const Value& message, std::string_view what) {
  constexpr std::array kRoles = {Role::kSystem, Role::kDeveloper, Role::kUser, Role::kModel, Role::kTool};
  const Value role = message.get("role");
  for (const Role known : kRoles) {
    if (role.is_string() && role.text() == role_name(known)) return known;
  }
  if (role.is_string() && role.text() == "model") return Role::kModel;
  fail(ErrorCode::kBadArgument, "{}: \"role\" must be one of system, developer, user, assistant, tool", what);
}

Content parse_content(const Value& content, std::string_view what) {
  if (content.is_undefined() || content.is_none()) return {};
  if (content.is_string()) return content.text();
  if (!content.is_list()) fail(ErrorCode::kBadArgument, "{}: \"content\" must be a string or a list of parts", what);
  std::vector<std::string> parts;
  for (const Value& part : content.as_list()) {
    const Value type = part.get("type");
    if (!type.is_string() || type.text() != "text" || !part.get("text").is_string()) {
      fail(ErrorCode::kBadArgument, "{}: only text parts {{\"type\": \"text\", \"text\": ...}} are understood", what);
    }
    parts.push_back(part.get("text").text());
  }
  return Content::of_parts(std::move(parts));
}

ToolCall parse_call(const Value& call, std::string_view what) {
  const Value function = call.get("function").is_map() ? call.get("function") : call;
  ToolCall result;
  result.id = optional_text(call, "id", what);
  result.name = optional_text(function, "name", what);
  const Value arguments = function.get("arguments");
  if (arguments.is_string()) {
    result.arguments = arguments.text();
  } else if (!arguments.is_undefined() && !arguments.is_none()) {
    result.arguments = to_compact_json(arguments);
  }
  return result;
}

Message parse_message(const Value& value, const std::string& what) {
  Message message{parse_role(value, what)};
  const Value content = value.get("content");
  if (message.role == Role::kTool && !content.is_string() && !content.is_list()) {
    message.result_json = to_compact_json(content);  // an absent result is null
  } else {
    message.content = parse_content(content, what);
  }
  message.reasoning = optional_text(value, "reasoning", what);
  if (message.reasoning.empty()) message.reasoning = optional_text(value, "reasoning_content", what);
  message.tool_call_id = optional_text(value, "tool_call_id", what);
  message.tool_name = optional_text(value, "name", what);
  const Value calls = value.get("tool_calls");
  if (calls.is_list()) {
    for (const Value& call : calls.as_list()) message.tool_calls.push_back(parse_call(call, what));
  }
  return message;
}

class JsonObject {
 public:
  JsonObject& add(std::string_view key, Value value) {
    map_.set(MarkedText(key, false), std::move(value));
    return *this;
  }
  JsonObject& add(std::string_view key, const std::string& text) { return add(key, Value::string(text, false)); }
  JsonObject& add_unless_empty(std::string_view key, const std::string& text) {
    return text.empty() ? *this : add(key, text);
  }
  Value take() { return Value::map(std::move(map_)); }

 private:
  ValueMap map_;
};

Value content_value(const Content& content) {
  if (!content.is_list()) return Value::string(content.joined(), false);
  std::vector<Value> parts;
  for (const std::string& part : content.parts()) {
    parts.push_back(JsonObject().add("type", "text").add("text", part).take());
  }
  return Value::list(std::move(parts));
}

Value message_value(const Message& message) {
  JsonObject object;
  object.add("role", std::string(role_name(message.role)));
  if (message.result_json.empty()) {
    object.add("content", content_value(message.content));
  } else {
    object.add("content", parse_json(message.result_json, false, "the tool result"));
  }
  object.add_unless_empty("reasoning_content", message.reasoning);
  if (!message.tool_calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& call : message.tool_calls) {
      const Value function = JsonObject().add("name", call.name).add("arguments", call.arguments).take();
      calls.push_back(
          JsonObject().add_unless_empty("id", call.id).add("type", "function").add("function", function).take());
    }
    object.add("tool_calls", Value::list(std::move(calls)));
  }
  object.add_unless_empty("tool_call_id", message.tool_call_id).add_unless_empty("name", message.tool_name);
  return object.take();
}

}  // namespace

std::vector<Tool> parse_tools(std::string_view json, std::string_view what) {
  return tools_of(parse_json(json, false, what), what);
}

Conversation parse_conversation(std::string_view json, std::string_view what) {
  const Value document = parse_json(json, false, what);
  const Value messages = document.is_map() ? document.get("messages") : document;
  if (!messages.is_list()) fail(ErrorCode::kBadArgument, "{}: \"messages\" must be a JSON list", what);
  Conversation conversation;
  for (const Value& message : messages.as_list()) {
    conversation.messages.push_back(
        parse_message(message, fmt::format("{}: message {}", what, conversation.messages.size())));
  }
  const Value tools = document.get("tools");
  if (!tools.is_undefined() && !tools.is_none()) conversation.tools = tools_of(tools, what);
  check_conversation(conversation);
  return conversation;
}

std::string conversation_to_json(const Conversation& conversation) {
  std::vector<Value> messages, tools;
  for (const Message& message : conversation.messages) messages.push_back(message_value(message));
  for (const Tool& tool : conversation.tools) tools.push_back(parse_json(tool.json, false, tool.name));
  JsonObject object;
  object.add("messages", Value::list(std::move(messages)));
  if (!tools.empty()) object.add("tools", Value::list(std::move(tools)));
  return to_json(object.take(), {.indent = 2, .item_separator = ","});
}

}  // namespace carat::text
