#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/facts.h"
#include "server/api/generation.h"
#include "server/api/reply.h"

namespace carat::server {

// The APIs that carat speaks. llama-server's own routes report errors as OpenAI's do.
enum class Dialect { kOpenAi, kAnthropic, kOllama };

// The answer that tells a client what was wrong with its request, in the words of its dialect, with the headers that
// say when to try again. `allow` of a wrong method is left to who knows the route.
Response refusal_response(Dialect dialect, const Problem& problem, std::string_view request_id);

// A request for text, read: what to generate, and how its events become the answer.
struct ParsedRequest {
  GenerationRequest generation;
  // Called once. What of the request an answer repeats is kept by the function.
  std::function<std::unique_ptr<Reply>(const ServerFacts& facts, ReplyIdentity identity)> make_reply;
  // What the ids of calls in its answer begin with.
  std::string_view call_id_prefix = "call_";
  // Given where a request asks for no text: its whole answer, and nothing is generated.
  std::function<Response(const ServerFacts& facts, const ReplyIdentity& identity)> answer_at_once = {};
};

// Whether a client means this server's model: its id or an alias, in any case, with or without the tag "latest". No
// name at all means the one model there is.
bool matches_model(std::string_view name, const ServerFacts& facts);

}  // namespace carat::server
