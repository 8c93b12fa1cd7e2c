#pragma once

#include <memory>
#include <string_view>

#include "server/api/dialect.h"
#include "server/api/fields.h"

namespace carat::server {

// POST /v1/completions: text without a template.

// Throws ApiError naming the field. Fields that change nothing about the answer's meaning are accepted and ignored.
GenerationRequest parse_openai_completions(std::string_view body);

std::unique_ptr<Reply> make_openai_completions_reply(const GenerationRequest& request, const ServerFacts& facts,
                                                     ReplyIdentity identity);

// Both in one.
ParsedRequest read_openai_completions(std::string_view body);

// "prompt": a text, token ids, or a list of either.
std::vector<RawPrompt> read_raw_prompts(const Fields& body);

}  // namespace carat::server
