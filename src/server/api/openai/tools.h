#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/generation.h"
#include "text/chat/conversation.h"

namespace carat::server {

// Tools of OpenAI's two APIs and of the dialects that borrow from them. All readers throw ApiError naming the field.

// "tools" as a request has them.
struct OpenAiTools {
  std::vector<text::Tool> tools = {};
  // Tools whose argument is a text instead of an object: the model sees a function with one string, "input".
  std::set<std::string> custom = {};
  std::vector<std::string> notes = {};
};

// Of chat completions: nested functions, with "functions" as the old form.
OpenAiTools read_chat_tools(const Fields& body);
// The same for dialects without custom tools of their own.
std::vector<text::Tool> read_openai_tools(const Fields& body);
// Of the Responses API: flat functions. Tools that only their vendor's server runs, and namespaces, are left out.
OpenAiTools read_responses_tools(const Fields& body);

// "tool_choice" (nested or flat; "function_call" is the old form) and "parallel_tool_calls".
ToolChoice read_openai_tool_choice(const Fields& body, const std::vector<text::Tool>& tools);

// One tool from a name and its JSON schema (undefined: no parameters).
text::Tool make_tool(const std::string& name, const text::Value& description, const text::Value& parameters,
                     const text::Value& strict);
void check_tool_name(const std::string& name, const std::string& path);
void check_tool_count(size_t count, const std::string& path);

// The text of a custom tool's call: the "input" of its arguments.
std::string custom_tool_input(const std::string& arguments);
// The arguments that stand for a text.
std::string custom_tool_arguments(const std::string& input);

}  // namespace carat::server
