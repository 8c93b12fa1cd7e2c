#include "server/api/responses/items.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "server/api/openai/messages.h"
#include "server/api/openai/tools.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Role;
using text::Value;

constexpr std::string_view kCall = "_call", kOutput = "_call_output";

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (paragraph.empty()) return;
  if (!text.empty()) text += "\n\n";
  text += paragraph;
}

std::string json_or_text(const Value& value) { return value.is_string() ? value.text() : text::to_compact_json(value); }

// Names of types are shown in notes and logs; what is not the name of a type may be anybody's words.
std::string shown_type(const std::string& type) {
  constexpr size_t kLongest = 40;
  const bool is_name = type.size() <= kLongest &&
                       std::all_of(type.begin(), type.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return is_name ? type : "(unknown)";
}

}  // namespace

text::Message& ItemReader::model_turn() {
  if (messages_.empty() || messages_.back().role != Role::kModel) messages_.push_back({Role::kModel});
  return messages_.back();
}

void ItemReader::add(const Value& value, const std::string& path) {
  const Fields item(value, path);
  const std::string type = item.text("type").value_or(item.has("role") ? "message" : "");
  if (type.empty()) refuse(item.path_of("type"), "{} is required", item.path_of("type"));
  if (type == "message") return add_message(value, path);
  if (type == "reasoning") return add_reasoning(value, path);
  if (type.ends_with(kOutput)) return add_output(value, type, path);
  if (type.ends_with(kCall)) return add_call(value, type, path);
  leave_out(shown_type(type));
}

void ItemReader::add_message(const Value& value, const std::string& path) {
  text::Message message = read_openai_message(value, path);
  if (message.role != Role::kModel) {
    messages_.push_back(std::move(message));
    return;
  }
  text::Message& turn = model_turn();
  if (turn.content.empty()) {
    turn.content = std::move(message.content);
  } else {
    std::string joined = turn.content.joined();
    append_paragraph(joined, message.content.joined());
    turn.content = std::move(joined);
  }
}

// Thoughts that come without their text (summaries, or text that only its vendor can read) are none.
void ItemReader::add_reasoning(const Value& value, const std::string& path) {
  const Fields item(value, path);
  std::string thoughts;
  size_t index = 0;
  for (const Value& part : item.list("content").value_or(std::vector<Value>())) {
    const Fields fields(part, item_path(item.path_of("content"), index++));
    append_paragraph(thoughts, fields.text("text").value_or(""));
  }
  if (!thoughts.empty()) append_paragraph(model_turn().reasoning, thoughts);
}

// function_call, custom_tool_call, local_shell_call ...: whatever has a call_id can have a result.
void ItemReader::add_call(const Value& value, const std::string& type, const std::string& path) {
  const Fields item(value, path);
  const bool is_function = type == "function_call";
  if (!is_function && !item.get("call_id").is_string()) return leave_out(shown_type(type));
  text::ToolCall call;
  call.id = item.text("call_id").value_or("");
  if (is_function || item.has("name")) {
    call.name = item.required_text("name");
  } else {
    call.name = type.substr(0, type.size() - kCall.size());
  }
  if (item.has("arguments")) {
    call.arguments = json_or_text(item.get("arguments"));
  } else if (const Value input = item.get("input"); input.is_string()) {
    call.arguments = custom_tool_arguments(input.text());
  } else {
    for (const char* key : {"action", "operation"}) {
      if (call.arguments.empty() && item.has(key)) call.arguments = json_or_text(item.get(key));
    }
  }
  model_turn().tool_calls.push_back(std::move(call));
}

void ItemReader::add_output(const Value& value, const std::string& type, const std::string& path) {
  const Fields item(value, path);
  const bool is_own = type == "function_call_output" || type == "custom_tool_call_output";
  const Value output = item.get("output");
  if (!is_own && (!item.get("call_id").is_string() || !item.has("output"))) return leave_out(shown_type(type));
  text::Message message{Role::kTool};
  message.tool_call_id = is_own ? item.required_text("call_id") : item.get("call_id").text();
  message.content = is_own ? read_openai_content(output, item.path_of("output")) : json_or_text(output);
  messages_.push_back(std::move(message));
}

std::vector<text::Message> ItemReader::take_messages() { return std::move(messages_); }

std::vector<std::string> ItemReader::notes() const {
  std::vector<std::string> notes;
  for (const auto& [type, count] : left_out_) {
    notes.push_back(fmt::format("input: {} item{} of type {} left out", count, count == 1 ? "" : "s", type));
  }
  return notes;
}

}  // namespace carat::server
