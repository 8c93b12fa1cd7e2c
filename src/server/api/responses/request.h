#pragma once

#include <memory>
#include <string_view>

#include "server/api/dialect.h"
#include "server/api/responses/response_store.h"

namespace carat::server {

// POST /v1/responses, and /v1/responses/input_tokens, whose body is the same. Conversations arrive whole, as items;
// with a store, a request may continue a kept response by its id (previous_response_id), and what is generated is kept
// under the id of its answer unless the request says "store": false. Throws ApiError naming the field.
ParsedRequest read_openai_responses(std::string_view body, std::shared_ptr<ResponseStore> store = nullptr);

}  // namespace carat::server
