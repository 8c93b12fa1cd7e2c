#pragma once

#include <cstdint>
#include <string_view>

#include "server/api/facts.h"
#include "server/api/reply.h"

namespace carat::server {

// GET /v1/models.
Response openai_models(const ServerFacts& facts);
// GET /v1/models/{id}; ids may contain slashes, and percent escapes are resolved already. Throws ApiError
// (kModelNotFound) for a name that does not mean the model.
Response openai_model(const ServerFacts& facts, std::string_view id);

// POST /v1/responses/input_tokens and /v1/chat/completions/input_tokens: their bodies are those of the requests whose
// tokens are counted.
Response openai_input_tokens(uint64_t tokens);

}  // namespace carat::server
