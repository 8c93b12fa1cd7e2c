#include "server/api/anthropic/messages.h"

#include <string_view>
#include <utility>

#include "server/api/api_error.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Message;
using text::Role;
using text::Value;

constexpr std::string_view kPrivate = "x-anthropic-";

bool is_given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

void append_line(std::string& text, std::string_view line) {
  if (!text.empty() && !line.empty()) text += '\n';
  text += line;
}

// What only Anthropic's servers make and read.
bool is_servers_own(std::string_view type) {
  constexpr std::string_view kResult = "_tool_result";
  return type == "redacted_thinking" || type == "server_tool_use" || type == "mcp_tool_use" ||
         (type.size() > kResult.size() && type.substr(type.size() - kResult.size()) == kResult);
}

std::string read_text_blocks(const Value& value, const std::string& path);

// A document as text: its title and context, and what it says.
std::string read_document(const Fields& block) {
  const auto source = block.object("source");
  if (!source) refuse(block.path_of("source"), "{} is required", block.path_of("source"));
  std::string text = block.text("title").value_or("");
  append_line(text, block.text("context").value_or(""));
  const std::string type = source->required_text("type");
  if (type == "text") {
    append_line(text, source->required_text("data"));
  } else if (type == "content") {
    append_line(text, read_text_blocks(source->get("content"), source->path_of("content")));
  } else {
    refuse(block.path(), "{}: this model reads documents as plain text, not from a source of type \"{}\"", block.path(),
           type);
  }
  return text;
}

std::string read_search_result(const Fields& block) {
  std::string text = block.text("title").value_or("");
  append_line(text, block.text("source").value_or(""));
  append_line(text, read_text_blocks(block.get("content"), block.path_of("content")));
  return text;
}

// The text of a block that is text in some form.
std::string read_text_block(const Value& value, const std::string& path) {
  if (value.is_string()) return value.text();
  const Fields block(value, path);
  const std::string type = block.required_text("type");
  if (type == "text") return block.required_text("text");
  if (type == "document") return read_document(block);
  if (type == "search_result") return read_search_result(block);
  if (type == "tool_reference") return block.required_text("tool_name");
  if (type == "image") refuse(path, "{}: this model reads no images", path);
  refuse(path, "{}: blocks of type \"{}\" are not supported here; send text", path, type);
}

// A string, or blocks of text, a line each.
std::string read_text_blocks(const Value& value, const std::string& path) {
  if (!is_given(value)) return {};
  if (value.is_string()) return value.text();
  if (!value.is_list()) refuse_kind(path, "a string or a list of blocks", value);
  std::string text;
  size_t index = 0;
  for (const Value& block : value.as_list()) append_line(text, read_text_block(block, item_path(path, index++)));
  return text;
}

// Instructions, of the field "system" or of a message with that role.
std::string read_instructions(const Value& value, const std::string& path) {
  if (!is_given(value)) return {};
  if (value.is_string()) {
    // One that was joined from blocks loses its first line only.
    const std::string& text = value.text();
    if (text.rfind(kPrivate, 0) != 0) return text;
    const size_t end = text.find('\n');
    return end == std::string::npos ? std::string() : text.substr(end + 1);
  }
  if (!value.is_list()) refuse_kind(path, "a string or a list of blocks", value);
  std::string instructions;
  size_t index = 0;
  for (const Value& block : value.as_list()) {
    const std::string text = read_text_block(block, item_path(path, index++));
    if (text.rfind(kPrivate, 0) != 0) append_line(instructions, text);
  }
  return instructions;
}

Message read_tool_result(const Fields& block) {
  Message result{Role::kTool};
  result.tool_call_id = block.required_text("tool_use_id");
  const std::string text = read_text_blocks(block.get("content"), block.path_of("content"));
  if (block.flag("is_error").value_or(false)) {
    result.result_json = "{\"error\":";
    text::append_json_string(text, false, result.result_json);
    result.result_json += '}';
  }
  result.content = text;
  return result;
}

// The results among the blocks come first, whatever their order, then the user's own text.
void read_user_message(const Value& content, const std::string& path, std::vector<Message>& messages) {
  if (content.is_string()) {
    messages.push_back({Role::kUser, content.text()});
    return;
  }
  if (!content.is_list()) refuse_kind(path, "a string or a list of blocks", content);
  std::vector<std::string> parts;
  bool has_results = false;
  size_t index = 0;
  for (const Value& item : content.as_list()) {
    const std::string place = item_path(path, index++);
    if (item.is_map()) {
      const Fields block(item, place);
      const std::string type = block.required_text("type");
      if (type == "tool_result") {
        messages.push_back(read_tool_result(block));
        has_results = true;
        continue;
      }
      if (is_servers_own(type)) continue;
    }
    parts.push_back(read_text_block(item, place));
  }
  if (parts.empty() && has_results) return;
  messages.push_back({Role::kUser, text::Content::of_parts(std::move(parts))});
}

text::ToolCall read_tool_use(const Fields& block) {
  text::ToolCall call{.id = block.required_text("id"), .name = block.required_text("name"), .arguments = {}};
  if (call.name.empty()) refuse(block.path_of("name"), "{} is empty", block.path_of("name"));
  const Value input = block.get("input");
  if (is_given(input)) call.arguments = input.is_string() ? input.text() : text::to_compact_json(input);
  return call;
}

// Blocks that mean nothing to this model are dropped: other servers wrote them.
Message read_assistant_message(const Value& content, const std::string& path) {
  Message message{Role::kModel};
  if (content.is_string()) {
    message.content = content.text();
    return message;
  }
  if (!content.is_list()) refuse_kind(path, "a string or a list of blocks", content);
  std::vector<std::string> parts;
  size_t index = 0;
  for (const Value& item : content.as_list()) {
    const std::string place = item_path(path, index++);
    if (item.is_string()) {
      parts.push_back(item.text());
      continue;
    }
    const Fields block(item, place);
    const std::string type = block.required_text("type");
    if (type == "text") {
      parts.push_back(block.required_text("text"));
    } else if (type == "thinking") {
      append_line(message.reasoning, block.required_text("thinking"));
    } else if (type == "tool_use") {
      message.tool_calls.push_back(read_tool_use(block));
    }
  }
  message.content = text::Content::of_parts(std::move(parts));
  return message;
}

void read_message(const Value& value, const std::string& path, std::vector<Message>& messages) {
  const Fields message(value, path);
  const std::string role = message.required_text("role");
  const Value content = message.get("content");
  const std::string place = message.path_of("content");
  if (role == "system") {
    messages.push_back({Role::kSystem, read_instructions(content, place)});
  } else if (role == "user") {
    read_user_message(content, place, messages);
  } else if (role == "assistant") {
    messages.push_back(read_assistant_message(content, place));
  } else {
    refuse(message.path_of("role"), "{} is \"{}\"; known are user, assistant and system", message.path_of("role"),
           role);
  }
}

}  // namespace

std::vector<Message> read_anthropic_conversation(const Fields& body) {
  const auto list = body.list("messages");
  if (!list) refuse("messages", "messages is required: a list with at least one message");
  if (list->empty()) refuse("messages", "messages is empty; send at least one message");
  std::vector<Message> messages;
  const std::string instructions = read_instructions(body.get("system"), "system");
  if (!instructions.empty()) messages.push_back({Role::kSystem, instructions});
  size_t index = 0;
  for (const Value& message : *list) read_message(message, item_path("messages", index++), messages);
  return messages;
}

}  // namespace carat::server
