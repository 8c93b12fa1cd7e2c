#include "server/api/llama/info.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/json_writer.h"
#include "server/api/llama/completion.h"
#include "server/api/openai/common.h"

namespace carat::server {

namespace {

// Not able to take work: `status` for people and carat's page, the error as llama-server writes it, whose clients
// expect the status as a number here.
Response not_ready(unsigned http_status, std::string_view status, std::string_view message,
                   std::optional<double> progress) {
  Response response{.status = http_status, .body = {}, .headers = {{"Retry-After", "1"}}};
  JsonWriter json(response.body);
  json.begin_object().field("status", status);
  if (progress) json.field("progress", *progress);
  json.key("error").begin_object().field("code", http_status).field("message", message);
  json.field("type", "unavailable_error").end_object().end_object();
  return response;
}

}  // namespace

Response health_ok() { return {.body = R"({"status":"ok"})"}; }

Response health_loading(double progress) {
  const double shown = std::isfinite(progress) ? std::clamp(progress, 0.0, 1.0) : 0.0;
  return not_ready(503, "loading", "Loading model", shown);
}

// Not 503: to a balancer such as HAProxy a 404 means "nothing new, but what runs may end" (http-check disable-on-404).
Response health_draining() { return not_ready(404, "draining", "The server is shutting down", std::nullopt); }

Response llama_props(const ServerFacts& facts) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().key("default_generation_settings").begin_object();
  json.field("n_ctx", facts.context).key("params");
  write_generation_settings(json, GenerationRequest{}, facts);
  json.end_object();
  json.field("total_slots", facts.sequences).field("model_alias", facts.model_id);
  json.field("model_path", facts.file_name).field("chat_template", facts.chat_template);
  json.key("chat_template_caps").begin_object();
  json.field("supports_system_role", true).field("supports_tools", true).field("supports_tool_calls", true);
  json.field("supports_parallel_tool_calls", true).end_object();
  json.field("bos_token", facts.bos_text).field("eos_token", facts.eos_text);
  json.key("modalities").begin_object().field("vision", false).field("audio", false).end_object();
  json.field("build_info", "carat " + facts.version).field("is_sleeping", false).end_object();
  return response;
}

Response llama_slots(std::span<const SlotFigures> slots, bool fail_on_no_slot) {
  const bool any_free =
      std::any_of(slots.begin(), slots.end(), [](const SlotFigures& slot) { return !slot.is_running; });
  if (fail_on_no_slot && !any_free) {
    return openai_error({.refusal = Refusal::kQueueTimeout, .message = "no slot is free", .code = "no_slot_available"});
  }
  Response response;
  JsonWriter json(response.body);
  json.begin_list();
  for (const SlotFigures& slot : slots) {
    json.begin_object().field("id", slot.id);
    slot.is_running ? json.field("id_task", slot.task) : json.field("id_task", -1);
    json.field("n_ctx", slot.context).field("is_processing", slot.is_running);
    json.field("n_prompt_tokens", slot.prompt_tokens).field("n_prompt_tokens_cache", slot.cached_tokens);
    json.field("n_prompt_tokens_processed", slot.read_tokens);
    json.key("next_token").begin_object().field("n_decoded", slot.generated_tokens).end_object().end_object();
  }
  json.end_list();
  return response;
}

ChatControl read_chat_control(std::string_view text) {
  const Fields body = parse_body(text);
  ChatControl control{.id = body.required_text("id")};
  const std::string action = body.required_text("action");
  if (action != "reasoning_end") refuse("action", "action is \"{}\"; known is reasoning_end", action);
  return control;
}

Response chat_control_done() { return {.body = R"({"success":true})"}; }

}  // namespace carat::server
