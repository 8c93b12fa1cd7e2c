#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "server/api/facts.h"
#include "server/api/reply.h"
#include "server/api/responses/response_store.h"

namespace carat::server {

// What of a request its response repeats or depends on. Members named *_json are JSON text.
struct ResponsesShape {
  std::string model;
  bool is_streamed = false;
  bool wants_logprobs = false;
  bool wants_encrypted = false;  // reasoning items have "encrypted_content"
  std::set<std::string> custom;  // tools whose calls are told as custom tool calls

  std::string instructions_json = "null", metadata_json = "{}", tools_json = "[]", tool_choice_json = "\"auto\"";
  std::string text_json = R"({"format":{"type":"text"}})", effort_json = "null", summary_json = "null";
  std::string user_json = "null";
  std::string previous;  // the id of the response that is continued
  bool is_parallel = true;
  std::optional<uint32_t> max_tokens;
  std::optional<double> temperature, top_p;
  uint32_t top_logprobs = 0;

  // Where the response is kept, if it is, with the conversation before it.
  std::shared_ptr<ResponseStore> store;
  ResponseStore::Items items;
};

std::unique_ptr<Reply> make_openai_responses_reply(std::shared_ptr<const ResponsesShape> shape,
                                                   const ServerFacts& facts, ReplyIdentity identity);

}  // namespace carat::server
