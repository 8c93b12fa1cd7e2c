#pragma once

#include <string>
#include <vector>

#include "server/api/fields.h"
#include "text/chat/conversation.h"

namespace carat::server {

// "system" and "messages" of Anthropic's requests as one list of messages, before conversation_rules.h brings them into
// shape. Marks of caching and signatures leave no trace. Throws ApiError naming the block that this model cannot read.
//
// Blocks of text that begin with x-anthropic- are dropped: clients put a line there that differs in every request, and
// nothing after it could ever be found in a cache.
std::vector<text::Message> read_anthropic_conversation(const Fields& body);

}  // namespace carat::server
