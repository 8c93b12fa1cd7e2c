#pragma once

#include <string>
#include <string_view>

#include "server/api/dialect.h"

namespace carat::server {

// POST /api/chat and /api/generate. Both throw ApiError naming the field. Options that say how a model is loaded
// (num_ctx, num_gpu, ...) are ignored, as are unknown ones; a request without messages or prompt asks to load or unload
// the model, and is answered at once without doing either.
ParsedRequest read_ollama_chat(std::string_view body);
ParsedRequest read_ollama_generate(std::string_view body);

// The model that the body of /api/show asks for; empty where it names none.
std::string read_ollama_model(std::string_view body);

}  // namespace carat::server
