#pragma once

#include "server/api/fields.h"
#include "server/api/generation.h"

namespace carat::server {

// What a conversation's and a raw completion's request have in common: model, sampling, format, lengths, stops and how
// the answer is delivered. Throws ApiError naming the field.
void read_openai_common(const Fields& body, GenerationRequest& request);

}  // namespace carat::server
