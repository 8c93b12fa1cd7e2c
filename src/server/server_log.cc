#include "server/server_log.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "server/api/json_writer.h"
#include "server/api/reply.h"

namespace carat::server {

namespace {

std::string timestamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return rfc3339(std::chrono::duration<double>(now).count(), true);
}

std::string request_text(const RequestLine& line) {
  std::string text = fmt::format("{} {} {} {:.3f} s", line.method, line.route, line.status, line.seconds);
  if (line.is_generation) {
    fmt::format_to(std::back_inserter(text), " · prompt {} ({} cached) · {} tokens · first after {:.3f} s",
                   line.prompt_tokens, line.cached_tokens, line.generated_tokens, line.first_token_seconds);
  }
  return text + fmt::format(" · {}", line.request_id);
}

std::string request_json(const RequestLine& line) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("time", timestamp()).field("level", "info").field("event", "request");
  json.field("method", line.method).field("route", line.route).field("status", line.status);
  json.field("seconds", line.seconds).field("request_id", line.request_id);
  if (line.is_generation) {
    json.field("prompt_tokens", line.prompt_tokens).field("cached_tokens", line.cached_tokens);
    json.field("generated_tokens", line.generated_tokens).field("first_token_seconds", line.first_token_seconds);
  }
  json.end_object();
  return out;
}

}  // namespace

ServerLog::ServerLog(Logger logger, bool as_json, bool with_requests)
    : logger_(std::move(logger)), as_json_(as_json), with_requests_(with_requests) {}

void ServerLog::info(std::string_view text) const { write(spdlog::level::info, text); }
void ServerLog::warn(std::string_view text) const { write(spdlog::level::warn, text); }
void ServerLog::error(std::string_view text) const { write(spdlog::level::err, text); }

void ServerLog::request(const RequestLine& line) const {
  if (!logger_ || !with_requests_) return;
  logger_->log(spdlog::level::info, as_json_ ? request_json(line) : request_text(line));
}

void ServerLog::write(spdlog::level::level_enum level, std::string_view text) const {
  if (!logger_) return;
  if (!as_json_) return logger_->log(level, text);
  std::string out;
  JsonWriter json(out);
  const auto name = spdlog::level::to_string_view(level);
  json.begin_object().field("time", timestamp()).field("level", std::string_view(name.data(), name.size()));
  json.field("event", "message").field("text", text).end_object();
  logger_->log(level, out);
}

}  // namespace carat::server
