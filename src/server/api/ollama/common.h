#pragma once

#include <string>
#include <string_view>

#include "server/api/event.h"
#include "server/api/reply.h"

namespace carat::server {

// Pieces of Ollama's dialect that more than one of its routes needs.

// {"error": "..."}; a full queue has Ollama's own status and words.
std::string ollama_error_json(const Problem& problem);
Response ollama_error(const Problem& problem);

// Why pull, create, push, copy, delete and blobs are refused: `action` is the word of the route.
Problem ollama_change_problem(std::string_view action);
// Why embed and embeddings are.
Problem ollama_embedding_problem();

}  // namespace carat::server
