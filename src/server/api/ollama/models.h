#pragma once

#include "server/api/facts.h"
#include "server/api/reply.h"

namespace carat::server {

// What Ollama's clients ask about the server and its one model.

Response ollama_greeting();                         // GET and HEAD /
Response ollama_version();                          // GET /api/version
Response ollama_tags(const ServerFacts& facts);     // GET /api/tags: the models there are
Response ollama_running(const ServerFacts& facts);  // GET /api/ps: those in memory
Response ollama_show(const ServerFacts& facts);     // POST /api/show

}  // namespace carat::server
