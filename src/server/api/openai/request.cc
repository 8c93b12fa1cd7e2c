#include "server/api/openai/request.h"

#include <string>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/openai/messages.h"

namespace carat::server {

namespace {

constexpr int64_t kMostChoices = 128;  // that can be written; how many are allowed is the server's setting

void read_lengths(const Fields& body, GenerationRequest& request) {
  auto most = body.integer("max_completion_tokens", -1, UINT32_MAX);
  if (!most) most = body.integer("max_tokens", -1, UINT32_MAX);
  if (most && *most >= 0) request.max_tokens = static_cast<uint32_t>(*most);
  request.min_tokens = static_cast<uint32_t>(body.integer("min_tokens", 0, INT32_MAX).value_or(0));
  request.ignore_eos = body.flag("ignore_eos").value_or(false);
  request.stops = body.texts("stop", kMaxStops);
  std::erase(request.stops, "");
  for (const text::Value& token : body.list("stop_token_ids").value_or(std::vector<text::Value>())) {
    const std::string place = item_path("stop_token_ids", request.stop_tokens.size());
    if (!token.is_integer() || token.as_integer() < 0 || token.as_integer() > INT32_MAX) {
      refuse_kind(place, "the id of a token", token);
    }
    request.stop_tokens.push_back(static_cast<text::TokenId>(token.as_integer()));
  }
}

void read_delivery(const Fields& body, GenerationRequest& request) {
  request.stream = body.flag("stream").value_or(false);
  if (const auto options = body.object("stream_options")) {
    request.include_usage = options->flag("include_usage").value_or(false);
  }
  request.return_progress = body.flag("return_progress").value_or(false);
  request.return_tokens = body.flag("return_tokens").value_or(false) || body.flag("return_token_ids").value_or(false);
  request.timings_per_token = body.flag("timings_per_token").value_or(false);
  request.ping_seconds = body.number("sse_ping_interval", -1.0, 3600.0);
  request.cache_prompt = body.flag("cache_prompt").value_or(true);
  request.cache_salt = body.text("cache_salt").value_or("");
  const text::Value user_id = body.get("metadata").get("user_id");
  for (const text::Value& name : {body.get("prompt_cache_key"), body.get("session_id"), user_id, body.get("user")}) {
    if (request.affinity.empty() && name.is_string()) request.affinity = name.text();
  }
  request.priority = static_cast<int>(body.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  if (const auto adapters = body.list("lora"); adapters && !adapters->empty()) {
    refuse("lora", "lora: adapters are not supported");
  }
}

}  // namespace

void read_openai_common(const Fields& body, GenerationRequest& request) {
  request.model = body.text("model").value_or("");
  request.sampling = read_openai_sampling(body);
  request.format = read_openai_format(body);
  request.choices = static_cast<uint32_t>(body.integer("n", 1, kMostChoices).value_or(1));
  read_lengths(body, request);
  read_delivery(body, request);
}

}  // namespace carat::server
