#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api/facts.h"
#include "server/api/reply.h"

namespace carat::server {

enum class OllamaRoute { kChat, kGenerate };

// What of a request its answer depends on.
struct OllamaReplyWishes {
  OllamaRoute route = OllamaRoute::kChat;
  std::string model = {};  // as the client called it
  bool is_streamed = true;
  bool wants_logprobs = false;
};

// The answer to /api/chat or /api/generate: one object, or one on each line. What keeps an idle stream alive is an
// object with nothing in it, since these clients know no comments.
std::unique_ptr<Reply> make_ollama_reply(OllamaReplyWishes wishes, const ServerFacts& facts, ReplyIdentity identity);

// The answer to a request that has nothing to answer: `reason` is "load" or "unload".
Response ollama_idle_response(const OllamaReplyWishes& wishes, std::string_view reason, const ServerFacts& facts,
                              const ReplyIdentity& identity);

}  // namespace carat::server
