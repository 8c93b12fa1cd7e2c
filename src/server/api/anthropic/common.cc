#include "server/api/anthropic/common.h"

#include <fmt/format.h>

#include <algorithm>

namespace carat::server {

namespace {

struct Terms {
  unsigned status;
  std::string_view type;
};

Terms terms_of(Refusal refusal) {
  const unsigned status = status_of(refusal);
  switch (refusal) {
    case Refusal::kBadRequest:
    case Refusal::kContextExceeded:
    case Refusal::kMethod:
    case Refusal::kMediaType:
    case Refusal::kHeaders:
      return {status, "invalid_request_error"};
    case Refusal::kUnauthorized:
      return {status, "authentication_error"};
    case Refusal::kForbidden:
      return {status, "permission_error"};
    case Refusal::kNotFound:
    case Refusal::kModelNotFound:
      return {status, "not_found_error"};
    case Refusal::kTooLarge:
      return {status, "request_too_large"};
    case Refusal::kQueueFull:
      return {status, "rate_limit_error"};
    case Refusal::kFailed:
    case Refusal::kNotSupported:
      return {status, "api_error"};
    case Refusal::kLoading:
    case Refusal::kDraining:
    case Refusal::kQueueTimeout:
      return {529, "overloaded_error"};
  }
  return {500, "api_error"};
}

std::string message_of(const Problem& problem) {
  if (problem.refusal != Refusal::kContextExceeded) return problem.message;
  return fmt::format("prompt is too long: {} tokens > {} maximum", problem.prompt_tokens, problem.context_tokens);
}

void write_model(JsonWriter& json, const ServerFacts& facts) {
  json.begin_object().field("type", "model").field("id", facts.model_id);
  json.field("display_name", facts.name.empty() ? facts.model_id : facts.name);
  json.field("created_at", rfc3339(facts.created, false)).end_object();
}

}  // namespace

std::string anthropic_error_json(const Problem& problem, std::string_view request_id) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("type", "error").key("error").begin_object();
  json.field("type", terms_of(problem.refusal).type).field("message", message_of(problem)).end_object();
  request_id.empty() ? json.null_field("request_id") : json.field("request_id", request_id);
  json.end_object();
  return out;
}

Response anthropic_error(const Problem& problem, std::string_view request_id) {
  Response response{.status = terms_of(problem.refusal).status,
                    .body = anthropic_error_json(problem, request_id),
                    .headers = anthropic_headers(request_id)};
  add_retry_headers(problem, response);
  return response;
}

std::vector<std::pair<std::string, std::string>> anthropic_headers(std::string_view request_id) {
  if (request_id.empty()) return {};
  return {{"request-id", std::string(request_id)}};
}

void write_anthropic_usage(JsonWriter& json, uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t output_tokens) {
  const uint32_t cached = std::min(cached_tokens, prompt_tokens);
  json.key("usage").begin_object().field("input_tokens", prompt_tokens - cached);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", cached);
  json.field("output_tokens", output_tokens).end_object();
}

Response anthropic_token_count(uint64_t tokens, std::string_view request_id) {
  Response response{.headers = anthropic_headers(request_id)};
  JsonWriter(response.body).begin_object().field("input_tokens", tokens).end_object();
  return response;
}

Response anthropic_models(const ServerFacts& facts, std::string_view request_id) {
  Response response{.headers = anthropic_headers(request_id)};
  JsonWriter json(response.body);
  json.begin_object().key("data").begin_list();
  write_model(json, facts);
  json.end_list().field("has_more", false).field("first_id", facts.model_id).field("last_id", facts.model_id);
  json.end_object();
  return response;
}

Response anthropic_model(const ServerFacts& facts, std::string_view request_id) {
  Response response{.headers = anthropic_headers(request_id)};
  JsonWriter json(response.body);
  write_model(json, facts);
  return response;
}

}  // namespace carat::server
