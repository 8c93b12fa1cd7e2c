// Bodies of POST /v1/messages: each is refused by name of the field, or its stream keeps the order of events, and what
// the events add up to is the answer that comes without a stream.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz_check.h"
#include "reply_check.h"
#include "server/api/anthropic/request.h"

namespace {

using carat::fuzz::Course;
using carat::fuzz::Sent;
using nlohmann::json;

// Follows a stream as a client does.
class Message {
 public:
  void take(const Sent& sent) {
    const json& data = sent.data;
    FUZZ_CHECK(!is_over_ && data.is_object() && data["type"] == sent.name);
    if (sent.name == "ping") return;
    if (sent.name == "error") {
      FUZZ_CHECK(data["error"]["message"].is_string());
      is_over_ = has_failed_ = true;
    } else if (sent.name == "message_start") {
      FUZZ_CHECK(message_.is_null());
      message_ = data["message"];
      FUZZ_CHECK(message_["content"] == json::array());
    } else if (sent.name == "message_delta") {
      FUZZ_CHECK(!message_.is_null() && !is_block_open_ && !has_ending_);
      has_ending_ = true;
      message_.update(data["delta"]);
      message_["usage"] = data["usage"];
    } else if (sent.name == "message_stop") {
      FUZZ_CHECK(has_ending_);
      is_over_ = true;
    } else {
      take_block(sent);
    }
  }
  bool is_over() const { return is_over_; }
  bool has_failed() const { return has_failed_; }
  const json& message() const { return message_; }

 private:
  void take_block(const Sent& sent) {
    FUZZ_CHECK(!message_.is_null() && !has_ending_);
    json& content = message_["content"];
    const json& data = sent.data;
    if (sent.name == "content_block_start") {
      FUZZ_CHECK(!is_block_open_ && data["index"] == content.size());
      is_block_open_ = true;
      content.push_back(data["content_block"]);
      arguments_.clear();
      return;
    }
    FUZZ_CHECK(is_block_open_ && data["index"] == content.size() - 1);
    json& block = content.back();
    if (sent.name == "content_block_stop") {
      is_block_open_ = false;
      if (block["type"] == "tool_use") block["input"] = json::parse(arguments_.empty() ? "{}" : arguments_);
      return;
    }
    FUZZ_CHECK(sent.name == "content_block_delta");
    const json& delta = data["delta"];
    if (delta["type"] == "input_json_delta") {
      FUZZ_CHECK(block["type"] == "tool_use");
      arguments_ += delta["partial_json"].get<std::string>();
    } else {
      const std::string type = block["type"];
      const bool is_signature = type == "thinking" && delta["type"] == "signature_delta";
      FUZZ_CHECK(is_signature || delta["type"] == type + "_delta");
      const std::string field = is_signature ? "signature" : type;
      block[field] = block[field].get<std::string>() + delta[field].get<std::string>();
    }
  }

  json message_;
  std::string arguments_;
  bool is_block_open_ = false, has_ending_ = false, is_over_ = false, has_failed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  std::optional<json> streamed, whole;
  const auto check_stream = [&](const std::vector<Sent>& sent, Course course) {
    Message message;
    for (const Sent& one : sent) message.take(one);
    FUZZ_CHECK(message.is_over() && message.has_failed() == (course != Course::kEnded));
    if (course == Course::kEnded) streamed = message.message();
  };
  const auto check_whole = [&](const json& answer) { whole = answer; };
  carat::fuzz::check_dialect(body, {carat::server::read_anthropic_messages, check_stream, check_whole});
  if (streamed && whole) FUZZ_CHECK(*streamed == *whole);
  try {
    carat::server::read_anthropic_count(body);
  } catch (const carat::server::ApiError&) {
    FUZZ_CHECK(!streamed && !whole);
  }
  return 0;
}
