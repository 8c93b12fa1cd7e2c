#include "server/api/conversation_rules.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Message;
using text::Role;

bool is_instruction(const Message& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

std::string text_of(const Message& message) {
  std::string joined;
  for (const std::string& part : message.content.parts()) {
    if (part.empty()) continue;
    if (!joined.empty()) joined += '\n';
    joined += part;
  }
  return joined;
}

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (paragraph.empty()) return;
  if (!text.empty()) text += "\n\n";
  text += paragraph;
}

// The content with a paragraph of its own before it.
text::Content with_paragraph(std::string paragraph, const text::Content& content) {
  // Templates trim each part, so the empty line has to be inside of one.
  std::vector<std::string> parts = content.parts();
  if (parts.empty() || (parts.size() == 1 && parts.front().empty())) return paragraph;
  parts.front() = std::move(paragraph) + "\n\n" + parts.front();
  return content.is_list() ? text::Content::of_parts(std::move(parts)) : text::Content(std::move(parts.front()));
}

Message orphaned_result(const Message& result) {
  const std::string name = result.tool_name.empty() ? "a tool" : result.tool_name;
  const std::string content = result.result_json.empty() ? text_of(result) : result.result_json;
  return {Role::kUser, fmt::format("Result of {}: {}", name, content)};
}

// Calls of the model's last message, by id and by name, as long as nothing but results follows it.
class OpenCalls {
 public:
  void open(const std::vector<text::ToolCall>& calls) {
    close();
    for (const text::ToolCall& call : calls) {
      if (!call.id.empty()) ids_.insert(call.id);
      names_.insert(call.name);
    }
  }
  void close() {
    ids_.clear();
    names_.clear();
  }
  bool has(const Message& result) const {
    if (!result.tool_call_id.empty()) return ids_.contains(result.tool_call_id);
    return !names_.empty() && (result.tool_name.empty() || names_.contains(result.tool_name));
  }

 private:
  std::set<std::string> ids_, names_;
};

}  // namespace

std::string arguments_object(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "{}";
  try {
    if (text::parse_json(text, false, "the arguments").is_map()) return std::string(text);
  } catch (const Error&) {
  }
  std::string wrapped = "{\"_raw\":";
  text::append_json_string(text, false, wrapped);
  return wrapped + "}";
}

text::Conversation normalised(text::Conversation conversation) {
  std::vector<Message> messages;
  std::string leading, later;  // instructions; the later ones wait for their place
  bool leads = true;
  OpenCalls open_calls;
  const auto place_later = [&] {
    if (later.empty()) return;
    messages.push_back({Role::kUser, std::exchange(later, {})});
    open_calls.close();
  };
  for (Message& message : conversation.messages) {
    if (is_instruction(message)) {
      append_paragraph(leads ? leading : later, text_of(message));
      continue;
    }
    if (message.role == Role::kModel && message.content.empty() && message.tool_calls.empty()) continue;
    leads = false;
    if (message.role == Role::kTool && !open_calls.has(message)) message = orphaned_result(message);
    if (message.role == Role::kModel) {
      place_later();
      for (text::ToolCall& call : message.tool_calls) call.arguments = arguments_object(call.arguments);
      open_calls.open(message.tool_calls);
    } else if (message.role == Role::kUser) {
      open_calls.close();
      if (!later.empty()) message.content = with_paragraph(std::exchange(later, {}), message.content);
    }
    messages.push_back(std::move(message));
  }
  place_later();
  if (!leading.empty()) messages.insert(messages.begin(), {Role::kSystem, std::move(leading)});
  conversation.messages = std::move(messages);
  return conversation;
}

}  // namespace carat::server
