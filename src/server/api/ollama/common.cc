#include "server/api/ollama/common.h"

#include <fmt/format.h>

#include "server/api/json_writer.h"

namespace carat::server {

std::string ollama_error_json(const Problem& problem) {
  std::string out;
  JsonWriter json(out);
  // These words are what Ollama's clients know a full queue by.
  const std::string_view message = problem.refusal == Refusal::kQueueFull
                                       ? "server busy, please try again. maximum pending requests exceeded"
                                       : std::string_view(problem.message);
  json.begin_object().field("error", message).end_object();
  return out;
}

Response ollama_error(const Problem& problem) {
  const bool is_full = problem.refusal == Refusal::kQueueFull;
  Response response{.status = is_full ? 503 : status_of(problem.refusal), .body = ollama_error_json(problem)};
  add_retry_headers(problem, response);
  return response;
}

Problem ollama_change_problem(std::string_view action) {
  return {.refusal = Refusal::kForbidden,
          .message = fmt::format("{}: this server has one model and changes none; start it with another one", action)};
}

Problem ollama_embedding_problem() {
  return {.refusal = Refusal::kNotSupported,
          .message = "this model writes text; it was not trained to make embeddings"};
}

}  // namespace carat::server
