#pragma once

#include <memory>
#include <string>

#include "server/api/facts.h"
#include "server/api/reply.h"

namespace carat::server {

// What of a request its answer depends on.
struct AnthropicReplyWishes {
  std::string model = {};  // as the client called it
  bool is_streamed = false;
  bool hides_thoughts = false;  // blocks of thoughts come without their text
};

// The answer to POST /v1/messages: one message, or its events. Blocks never overlap; a stream that fails ends with an
// error and without message_stop, so that nobody takes it for a whole answer.
std::unique_ptr<Reply> make_anthropic_reply(AnthropicReplyWishes wishes, const ServerFacts& facts,
                                            ReplyIdentity identity);

}  // namespace carat::server
