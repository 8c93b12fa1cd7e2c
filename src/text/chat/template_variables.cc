#include "text/chat/chat_template.h"
#include "text/value_json.h"

namespace carat::text {

namespace {

// A map whose keys are ours; the values decide for themselves.
class Fields {
 public:
  Fields& add(std::string_view key, Value value) {
    map_.set(MarkedText(key, true), std::move(value));
    return *this;
  }
  Fields& ours(std::string_view key, std::string_view text) { return add(key, Value::string(text, true)); }
  Fields& content(std::string_view key, std::string_view text) { return add(key, Value::string(text, false)); }
  Fields& content_unless_empty(std::string_view key, std::string_view text) {
    return text.empty() ? *this : content(key, text);
  }
  Value value() { return Value::map(std::move(map_)); }
  ValueMap map() { return std::move(map_); }

 private:
  ValueMap map_;
};

Value content_value(const Content& content) {
  if (!content.is_list()) return Value::string(content.joined(), false);
  std::vector<Value> parts;
  for (const std::string& part : content.parts()) {
    parts.push_back(Fields().ours("type", "text").content("text", part).value());
  }
  return Value::list(std::move(parts));
}

Value calls_value(const std::vector<ToolCall>& calls) {
  std::vector<Value> values;
  for (const ToolCall& call : calls) {
    const std::string_view arguments = call.arguments.empty() ? "{}" : std::string_view(call.arguments);
    Fields function;
    function.content("name", call.name).add("arguments", parse_json(arguments, false, call.name));
    values.push_back(Fields()
                         .content_unless_empty("id", call.id)
                         .ours("type", "function")
                         .add("function", function.value())
                         .value());
  }
  return Value::list(std::move(values));
}

Value message_value(const Message& message) {
  Fields fields;
  fields.ours("role", role_name(message.role));
  if (message.result_json.empty()) {
    fields.add("content", content_value(message.content));
  } else {
    fields.add("content", parse_json(message.result_json, false, "the tool result"));
  }
  fields.content_unless_empty("reasoning", message.reasoning);
  fields.content_unless_empty("reasoning_content", message.reasoning);
  if (!message.tool_calls.empty()) fields.add("tool_calls", calls_value(message.tool_calls));
  fields.content_unless_empty("tool_call_id", message.tool_call_id);
  fields.content_unless_empty("name", message.tool_name);
  return fields.value();
}

}  // namespace

ValueMap template_variables(const Conversation& conversation, const RenderOptions& options, std::string_view bos) {
  std::vector<Value> messages, tools;
  for (const Message& message : conversation.messages) messages.push_back(message_value(message));
  for (const Tool& tool : conversation.tools) tools.push_back(parse_json(tool.json, false, tool.name));
  Fields variables;
  variables.add("messages", Value::list(std::move(messages)));
  variables.add("tools", tools.empty() ? Value::none() : Value::list(std::move(tools)));
  variables.add("add_generation_prompt", Value::boolean(options.add_generation_prompt));
  variables.add("enable_thinking", Value::boolean(options.thinking));
  variables.add("preserve_thinking", Value::boolean(options.preserve_thinking));
  variables.ours("bos_token", bos);
  return variables.map();
}

}  // namespace carat::text
