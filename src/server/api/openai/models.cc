#include "server/api/openai/models.h"

#include <string>

#include "server/api/dialect.h"
#include "server/api/json_writer.h"

namespace carat::server {

namespace {

void write_model(JsonWriter& json, const ServerFacts& facts, std::string_view id) {
  json.begin_object().field("id", id).field("object", "model");
  json.field("created", static_cast<int64_t>(facts.created)).field("owned_by", "carat");
  json.field("root", facts.model_id).null_field("parent").field("max_model_len", facts.context);
  json.key("aliases").begin_list();
  for (const std::string& alias : facts.aliases) json.value(alias);
  json.end_list();
  json.key("capabilities").begin_list().value("completion").value("tools").value("thinking").end_list();
  json.key("meta").begin_object();
  json.field("n_ctx", facts.context).field("n_ctx_train", facts.trained_context).field("n_vocab", facts.vocabulary);
  json.field("n_embd", facts.width).field("n_params", facts.parameters).field("size", facts.file_bytes);
  json.end_object().end_object();
}

}  // namespace

Response openai_models(const ServerFacts& facts) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().field("object", "list").key("data").begin_list();
  write_model(json, facts, facts.model_id);
  json.end_list().end_object();
  return response;
}

Response openai_model(const ServerFacts& facts, std::string_view id) {
  if (!matches_model(id, facts)) {
    throw ApiError({.refusal = Refusal::kModelNotFound,
                    .message = fmt::format("there is no model \"{}\"; this server has {}", id, facts.model_id),
                    .param = "model"});
  }
  Response response;
  JsonWriter json(response.body);
  write_model(json, facts, id);
  return response;
}

Response openai_input_tokens(uint64_t tokens) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().field("object", "response.input_tokens").field("input_tokens", tokens).end_object();
  return response;
}

}  // namespace carat::server
