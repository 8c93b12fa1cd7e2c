#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/event.h"
#include "server/api/facts.h"
#include "server/api/json_writer.h"
#include "server/api/reply.h"

namespace carat::server {

// Pieces of Anthropic's dialect that more than one of its routes needs.

// The error object of answers and of streams, and the answer with its status: 529 where OpenAI's has 503, and for a
// prompt that is too long the words whose numbers Claude Code reads.
std::string anthropic_error_json(const Problem& problem, std::string_view request_id);
Response anthropic_error(const Problem& problem, std::string_view request_id);

// Header that every answer of this dialect has.
std::vector<std::pair<std::string, std::string>> anthropic_headers(std::string_view request_id);

// "usage": {...}. Tokens that were in the cache are not among the input tokens, unlike in OpenAI's usage.
void write_anthropic_usage(JsonWriter& json, uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t output_tokens);

// POST /v1/messages/count_tokens: the whole rendered prompt.
Response anthropic_token_count(uint64_t tokens, std::string_view request_id);

// GET /v1/models and /v1/models/{id} for clients that send anthropic-version.
Response anthropic_models(const ServerFacts& facts, std::string_view request_id);
Response anthropic_model(const ServerFacts& facts, std::string_view request_id);

}  // namespace carat::server
