#pragma once

#include <string>
#include <string_view>

#include "text/chat/conversation.h"

namespace carat::server {

// Clients send conversations that no template takes as they are: instructions in the middle, results whose calls were
// trimmed away, arguments that other models broke. They are brought into a shape that every template renders, in ways
// that keep what comes before a change byte for byte, so that prefixes of prompts stay in the cache. What comes out
// passes text::check_conversation, unless nothing is left:
//   - leading system and developer messages become one system message;
//   - later ones become the first paragraph of the user message that follows, or a user message of their own where the
//     model's or nothing does;
//   - arguments that are not a JSON object become {"_raw": "..."};
//   - a result without its call right before it becomes a user's text;
//   - an empty message of the model without calls is left out.
text::Conversation normalised(text::Conversation conversation);

// The arguments of a call as JSON text of an object, from whatever a client sent: empty text is {}.
std::string arguments_object(std::string_view text);

}  // namespace carat::server
