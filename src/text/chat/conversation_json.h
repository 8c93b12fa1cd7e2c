#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.h"

namespace carat::text {

// Tools in the OpenAI schema: a list of {"type": "function", "function": {...}}, of bare {"name": ...} objects, or one
// of either. `what` names the text in errors (kBadArgument), such as the file it came from.
std::vector<Tool> parse_tools(std::string_view json, std::string_view what);

// Messages as the OpenAI chat API has them, also inside an object with "messages" and perhaps "tools". Call arguments
// may be objects or their JSON text; a tool result may be any JSON value. Content other than text is refused.
Conversation parse_conversation(std::string_view json, std::string_view what);

// {"messages": [...], "tools": [...]}, which parse_conversation reads back.
std::string conversation_to_json(const Conversation& conversation);

}  // namespace carat::text
