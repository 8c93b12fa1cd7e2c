#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "server/api/dialect.h"
#include "server/api/facts.h"
#include "server/api/generation.h"
#include "server/api/reply.h"

namespace carat::server {

// POST /v1/chat/completions.

// Throws ApiError naming the field. Fields that change nothing about the answer's meaning are accepted and ignored.
GenerationRequest parse_openai_chat(std::string_view body);

// How an answer tells of calls.
struct OpenAiChatStyle {
  bool old_functions = false;    // "function_call", for requests that have "functions" instead of "tools"
  std::set<std::string> custom;  // tools whose argument is a text
};
std::unique_ptr<Reply> make_openai_chat_reply(const GenerationRequest& request, const ServerFacts& facts,
                                              ReplyIdentity identity, const OpenAiChatStyle& style = {});

// Both in one.
ParsedRequest read_openai_chat(std::string_view body);

}  // namespace carat::server
