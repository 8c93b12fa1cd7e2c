#pragma once

#include <string_view>

#include "server/api/dialect.h"
#include "server/api/json_writer.h"

namespace carat::server {

// POST /completion and /completions: text without a template, in llama-server's own shape. Special texts in the prompt
// become their tokens unless "parse_special" is false: the clients of this route render templates themselves. Several
// prompts or answers make a list of results; a stream ends with a result that has "stop": true, and no "[DONE]".
// Throws ApiError naming the field.
ParsedRequest read_llama_completion(std::string_view body);

// {...}: what a request, with the server's values where it says nothing, is generated with.
void write_generation_settings(JsonWriter& json, const GenerationRequest& request, const ServerFacts& facts);

}  // namespace carat::server
