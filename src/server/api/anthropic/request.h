#pragma once

#include <string_view>

#include "server/api/dialect.h"

namespace carat::server {

// POST /v1/messages. Throws ApiError naming the field; fields that change nothing about the answer's meaning are
// accepted and ignored.
ParsedRequest read_anthropic_messages(std::string_view body);

// POST /v1/messages/count_tokens: the request whose prompt is counted; nothing is generated, so lengths do not matter.
// anthropic_token_count writes the answer.
GenerationRequest read_anthropic_count(std::string_view body);

}  // namespace carat::server
