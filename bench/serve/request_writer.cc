#include "serve/request_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace carat::serve_bench {

namespace {

using Json = nlohmann::json;

// The members of a JSON object, with a comma before them.
std::string members_of(const std::string& object) {
  if (object.empty()) return "";
  const Json parsed = Json::parse(object, nullptr, false);
  if (!parsed.is_object()) fail(ErrorCode::kBadArgument, "--extra-body {}: expected a JSON object", object);
  const std::string text = parsed.dump();
  return parsed.empty() ? "" : "," + text.substr(1, text.size() - 2);
}

}  // namespace

RequestWriter::RequestWriter(const TargetOptions& target, const BaseUrl& url, std::string model, bool has_token_ids)
    : is_chat_(target.backend == Backend::kChat),
      has_token_ids_(has_token_ids),
      session_header_(target.session_header),
      prefix_(url.prefix) {
  headers_ = fmt::format("Host: {}\r\nAccept: */*\r\n", url.authority());
  if (!target.api_key.empty()) headers_ += fmt::format("Authorization: Bearer {}\r\n", target.api_key);
  for (const auto& [name, value] : target.headers) headers_ += fmt::format("{}: {}\r\n", name, value);
  head_ = fmt::format("POST {}{} HTTP/1.1\r\n{}Content-Type: application/json\r\n", prefix_, target.path(), headers_);
  const std::string_view mark = is_chat_ || has_token_ids_ ? "[" : "\"";
  before_ = fmt::format(R"({{"model":{},"{}":{})", Json(model).dump(), is_chat_ ? "messages" : "prompt", mark);
  after_ = fmt::format(R"({},"stream":true,"stream_options":{{"include_usage":true}},"temperature":{}{}{},)",
                       is_chat_ || has_token_ids_ ? "]" : "\"", target.temperature,
                       target.ignore_eos ? R"(,"ignore_eos":true)" : "", members_of(target.extra_body));
  after_ += is_chat_ ? R"("max_completion_tokens":)" : R"("max_tokens":)";
}

Conversation RequestWriter::begin(const Session& session) const {
  Conversation conversation;
  if (!session_header_.empty()) conversation.headers = fmt::format("{}: {}\r\n", session_header_, session.name);
  if (session.system.empty()) return conversation;
  is_chat_ ? add_message("system", session.system, conversation) : add_text(session.system, conversation);
  return conversation;
}

void RequestWriter::add_turn(const Turn& turn, Conversation& conversation) const {
  if (turn.messages.empty()) {
    return is_chat_ ? add_message("user", turn.content, conversation) : add_text(turn.content, conversation);
  }
  if (!is_chat_) fail(ErrorCode::kBadArgument, "the dataset has messages: they need --backend openai-chat");
  conversation.text = turn.messages;
}

void RequestWriter::add_answer(std::string_view answer, Conversation& conversation) const {
  is_chat_ ? add_message("assistant", answer, conversation) : add_text(answer, conversation);
}

void RequestWriter::add_text(std::string_view text, Conversation& conversation) const {
  if (!conversation.text.empty() && !text.empty()) conversation.text += has_token_ids_ ? ',' : ' ';
  conversation.text += text;
}

void RequestWriter::add_message(std::string_view role, std::string_view content, Conversation& conversation) const {
  if (!conversation.text.empty()) conversation.text += ',';
  conversation.text += R"({"role":")";
  conversation.text += role;
  conversation.text += R"(","content":")";
  conversation.text += content;
  conversation.text += R"("})";
}

std::string RequestWriter::request(const Conversation& conversation, uint32_t output_tokens) const {
  const std::string limit = fmt::format("{}}}", output_tokens);
  const size_t length = before_.size() + conversation.text.size() + after_.size() + limit.size();
  std::string request;
  request.reserve(head_.size() + conversation.headers.size() + 64 + length);
  request += head_;
  request += conversation.headers;
  request += fmt::format("Content-Length: {}\r\n\r\n", length);
  request += before_;
  request += conversation.text;
  request += after_;
  request += limit;
  return request;
}

std::string RequestWriter::get(std::string_view path) const {
  return fmt::format("GET {}{} HTTP/1.1\r\n{}\r\n", prefix_, path, headers_);
}

}  // namespace carat::serve_bench
