#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carat::text {

enum class Role { kSystem, kDeveloper, kUser, kModel, kTool };

// The text of a message: one string, or parts, which a template trims one by one.
class Content {
 public:
  Content() = default;
  Content(std::string text) : parts_(1, std::move(text)) {}  // NOLINT: a string is a content
  Content(const char* text) : Content(std::string(text)) {}  // NOLINT
  static Content of_parts(std::vector<std::string> parts) {
    Content content;
    content.parts_ = std::move(parts);
    content.is_list_ = true;
    return content;
  }

  bool is_list() const { return is_list_; }
  const std::vector<std::string>& parts() const { return parts_; }
  // Empty or absent; a list is empty when it has no parts.
  bool empty() const { return is_list_ ? parts_.empty() : parts_.empty() || parts_.front().empty(); }
  std::string joined() const {
    std::string text;
    for (const std::string& part : parts_) text += part;
    return text;
  }

 private:
  std::vector<std::string> parts_;
  bool is_list_ = false;
};

struct ToolCall {
  std::string id;  // empty: none
  std::string name;
  std::string arguments;  // JSON text of an object; empty means no arguments
};

struct Message {
  Role role;
  Content content = {};
  // Of the model: what it thought, without markers, and what it called.
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  // Of a tool: the call it answers, the tool's name where no id says it, and the result as JSON text where it is more
  // than a string (`content` then does not count).
  std::string tool_call_id = {};
  std::string tool_name = {};
  std::string result_json = {};
};

// A tool the model may call: {"type": "function", "function": {"name", "description", "parameters"}} as JSON text.
struct Tool {
  std::string name;
  std::string json;
};

struct Conversation {
  std::vector<Message> messages = {};
  std::vector<Tool> tools = {};
};

std::string_view role_name(Role role);  // as the OpenAI API calls it: "assistant" for the model

// Throws kBadArgument, naming the message by its number, for what no template could render truthfully: no messages,
// a tool result without a call before it, arguments that are no JSON object.
void check_conversation(const Conversation& conversation);

}  // namespace carat::text
