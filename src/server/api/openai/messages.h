#pragma once

#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/openai/tools.h"
#include "text/chat/conversation.h"

namespace carat::server {

// What OpenAI's chat completions and the dialects that borrow from it have in common. All throw ApiError naming the
// field.

// "messages", as any client sends them: see conversation_rules.h for what is put right.
std::vector<text::Message> read_openai_messages(const Fields& body);
// One message; `path` is its place.
text::Message read_openai_message(const text::Value& value, const std::string& path);
// One entry of "tool_calls": arguments as JSON text or as an object.
text::ToolCall read_openai_call(const text::Value& value, const std::string& path);
// Text of a string, null or parts; parts other than text are refused by name.
text::Content read_openai_content(const text::Value& content, const std::string& path);

// Sampling fields by the names that OpenAI, vLLM and llama-server give them.
SamplingWishes read_openai_sampling(const Fields& body);
// "response_format" and the fields that vLLM and llama-server have for the same; two at once are refused.
AnswerFormat read_openai_format(const Fields& body);
// {"type": "json_schema", ...}: an object that says what the answer must match. Refused where `format` is set already.
void add_openai_format(const Fields& wish, AnswerFormat& format);
// Throws where `schema` cannot be one.
AnswerFormat json_schema_format(const text::Value& schema, const std::string& path);
ThinkingWishes read_openai_thinking(const Fields& body);

// "high" -> on; "none" -> off; throws for a word that is not an effort.
ThinkingWishes thinking_for_effort(const std::string& effort, const std::string& path);

}  // namespace carat::server
