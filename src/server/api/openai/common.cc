#include "server/api/openai/common.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace carat::server {

namespace {

struct Words {
  std::string_view type, code;  // code: empty is null
};

Words words_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kBadRequest:
    case Refusal::kMethod:
    case Refusal::kTooLarge:
    case Refusal::kMediaType:
    case Refusal::kHeaders:
      return {"invalid_request_error", ""};
    case Refusal::kContextExceeded:
      return {"invalid_request_error", "context_length_exceeded"};
    case Refusal::kUnauthorized:
      return {"authentication_error", "invalid_api_key"};
    case Refusal::kForbidden:
      return {"permission_error", ""};
    case Refusal::kNotFound:
      return {"not_found_error", ""};
    case Refusal::kModelNotFound:
      return {"not_found_error", "model_not_found"};
    case Refusal::kQueueFull:
      return {"rate_limit_error", "queue_full"};
    case Refusal::kFailed:
      return {"server_error", ""};
    case Refusal::kNotSupported:
      return {"not_supported_error", ""};
    case Refusal::kLoading:
      return {"unavailable_error", "loading"};
    case Refusal::kDraining:
      return {"unavailable_error", "draining"};
    case Refusal::kQueueTimeout:
      return {"unavailable_error", "timeout_in_queue"};
  }
  return {"server_error", ""};
}

double per_second(uint32_t tokens, double seconds) { return seconds > 0.0 ? tokens / seconds : 0.0; }

double per_token_ms(uint32_t tokens, double seconds) { return tokens > 0 ? 1e3 * seconds / tokens : 0.0; }

void write_token(JsonWriter& json, const TokenLogprob& token) {
  json.field("token", printable_token(token.bytes)).field("logprob", finite_logprob(token.logprob));
  json.key("bytes").begin_list();
  for (const char byte : token.bytes) json.value(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  json.end_list();
}

}  // namespace

std::string openai_error_json(const Problem& problem) {
  const Words words = words_of(problem.refusal);
  const std::string_view code = problem.code.empty() ? words.code : std::string_view(problem.code);
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.field("message", problem.message).field("type", words.type);
  problem.param.empty() ? json.null_field("param") : json.field("param", problem.param);
  code.empty() ? json.null_field("code") : json.field("code", code);
  if (problem.refusal == Refusal::kContextExceeded) {
    // llama-server's clients look for these.
    json.field("n_prompt_tokens", problem.prompt_tokens).field("n_ctx", problem.context_tokens);
  }
  json.end_object().end_object();
  return out;
}

Response openai_error(const Problem& problem) {
  Response response{.status = status_of(problem.refusal), .body = openai_error_json(problem)};
  add_retry_headers(problem, response);
  return response;
}

std::string_view openai_finish(Finish finish) {
  switch (finish) {
    case Finish::kToolCalls:
      return "tool_calls";
    case Finish::kLength:
    case Finish::kContextFull:
      return "length";
    case Finish::kStop:
    case Finish::kStopString:
    case Finish::kStopToken:
    case Finish::kLoop:
      return "stop";
  }
  return "stop";
}

void write_carat(JsonWriter& json, Finish finish, const std::vector<BadCall>& bad_calls,
                 const std::vector<std::string>& notes) {
  const std::string_view ending = finish == Finish::kLoop          ? "loop"
                                  : finish == Finish::kContextFull ? "context_full"
                                                                   : "";
  if (ending.empty() && bad_calls.empty() && notes.empty()) return;
  json.key("carat").begin_object();
  if (!ending.empty()) json.field("ending", ending);
  if (!bad_calls.empty()) {
    json.key("bad_tool_call").begin_object();
    json.field("text", bad_calls.front().text).field("problem", bad_calls.front().problem).end_object();
  }
  if (!notes.empty()) {
    json.key("notes").begin_list();
    for (const std::string& note : notes) json.value(note);
    json.end_list();
  }
  json.end_object();
}

void write_openai_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", usage.cached_tokens);
  if (usage.lost_tokens > 0) {
    json.key("carat_lost").begin_object();
    json.field("tokens", usage.lost_tokens).field("reason", usage.lost_reason).end_object();
  }
  json.end_object();
  json.key("completion_tokens_details").begin_object().field("reasoning_tokens", usage.thought_tokens).end_object();
  json.end_object();
}

void write_timings(JsonWriter& json, const Usage& usage) {
  const uint32_t read = usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens);
  json.key("timings").begin_object();
  json.field("cache_n", usage.cached_tokens).field("prompt_n", read).field("prompt_ms", 1e3 * usage.prompt_seconds);
  json.field("prompt_per_token_ms", per_token_ms(read, usage.prompt_seconds));
  json.field("prompt_per_second", per_second(read, usage.prompt_seconds));
  json.field("predicted_n", usage.completion_tokens).field("predicted_ms", 1e3 * usage.decode_seconds);
  json.field("predicted_per_token_ms", per_token_ms(usage.completion_tokens, usage.decode_seconds));
  json.field("predicted_per_second", per_second(usage.completion_tokens, usage.decode_seconds));
  if (usage.drafted > 0) json.field("draft_n", usage.drafted).field("draft_n_accepted", usage.accepted);
  json.end_object();
}

void write_logprob_list(JsonWriter& json, const std::vector<ChosenLogprob>& logprobs) {
  json.begin_list();
  for (const ChosenLogprob& chosen : logprobs) {
    json.begin_object();
    write_token(json, chosen);
    json.key("top_logprobs").begin_list();
    for (const TokenLogprob& other : chosen.top) {
      json.begin_object();
      write_token(json, other);
      json.end_object();
    }
    json.end_list().end_object();
  }
  json.end_list();
}

void write_chat_logprobs(JsonWriter& json, const std::vector<ChosenLogprob>& logprobs) {
  json.begin_object().key("content");
  write_logprob_list(json, logprobs);
  json.null_field("refusal").end_object();
}

void write_token_ids(JsonWriter& json, std::string_view key, const std::vector<text::TokenId>& tokens) {
  json.key(key).begin_list();
  for (const text::TokenId token : tokens) json.value(token);
  json.end_list();
}

void write_prompt_progress(JsonWriter& json, const Progress& progress) {
  json.key("prompt_progress").begin_object();
  json.field("total", progress.total).field("cache", progress.cached).field("processed", progress.processed);
  json.field("time_ms", progress.milliseconds).end_object();
}

void write_stop_reason(JsonWriter& json, const ChoiceEnded& ended) {
  if (ended.finish == Finish::kStopString) json.field("stop_reason", ended.stopped_by);
  if (ended.finish == Finish::kStopToken) json.field("stop_reason", ended.stop_token);
}

std::string printable_token(std::string_view bytes) { return utf8_sanitise(bytes); }

double finite_logprob(double logprob) {
  constexpr double kImpossible = -9999.0;
  return std::isfinite(logprob) ? std::max(logprob, kImpossible) : kImpossible;
}

}  // namespace carat::server
