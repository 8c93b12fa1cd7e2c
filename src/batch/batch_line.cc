#include "batch/batch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "server/api/json_writer.h"
#include "text/value_json.h"

namespace carat::batch {

namespace {

constexpr std::array<std::string_view, 3> kUrls = {"/v1/chat/completions", "/v1/completions", "/v1/responses"};

// Throws ApiError with a code for everything that is wrong but a body that the API itself refuses.
void read(std::string_view json, BatchLine& line) {
  const server::Fields fields = server::parse_body(json);
  const auto refuse = [](const char* code, std::string message) {
    throw server::ApiError({.message = std::move(message), .code = code});
  };
  line.custom_id = fields.required_text("custom_id");
  const std::string method = fields.required_text("method");
  if (method != "POST") refuse("invalid_method", fmt::format("method is \"{}\"; a batch can only POST", method));
  line.url = fields.required_text("url");
  if (std::find(kUrls.begin(), kUrls.end(), line.url) == kUrls.end()) {
    refuse("invalid_url", fmt::format("url is \"{}\"; a batch can ask {}", line.url, fmt::join(kUrls, ", ")));
  }
  const auto body = fields.object("body");
  if (!body) refuse("", "body is required");
  if (body->flag("stream").value_or(false)) refuse("", "body.stream: a batch has no streams; leave it out");
  line.body = text::to_compact_json(body->value());
}

server::JsonWriter& begin(server::JsonWriter& json, uint64_t number) {
  return json.begin_object().field("id", line_id(number));
}

}  // namespace

bool read_line(std::string_view json, BatchLine& line, LineProblem& problem) {
  line = {};
  try {
    read(json, line);
    return true;
  } catch (const server::ApiError& error) {
    problem.code = error.problem().code.empty() ? "invalid_request" : error.problem().code;
    problem.message = error.what();
  } catch (const Error& error) {
    problem.code = "invalid_request";
    problem.message = error.what();
  }
  problem.custom_id = std::move(line.custom_id);
  return false;
}

std::string line_id(uint64_t number) { return fmt::format("batch_req_{}", number); }

std::string answered_line(uint64_t number, std::string_view custom_id, unsigned status, std::string_view body) {
  std::string out;
  server::JsonWriter json(out);
  begin(json, number).field("custom_id", custom_id).key("response").begin_object();
  json.field("status_code", status).field("request_id", line_id(number)).raw_field("body", body).end_object();
  json.null_field("error").end_object();
  return out;
}

std::string refused_line(uint64_t number, const LineProblem& problem) {
  std::string out;
  server::JsonWriter json(out);
  begin(json, number).field("custom_id", problem.custom_id).null_field("response").key("error").begin_object();
  json.field("code", problem.code).field("message", problem.message).end_object().end_object();
  return out;
}

}  // namespace carat::batch
