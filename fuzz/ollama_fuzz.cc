// Bodies of POST /api/chat and /api/generate: each is refused by name of the field, or its stream is one object on each
// line of which only the last says that it is done, and the lines add up to the answer that comes without a stream.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz_check.h"
#include "reply_check.h"
#include "server/api/ollama/request.h"

namespace {

using carat::fuzz::Course;
using carat::fuzz::Sent;
using nlohmann::json;

void append(json& into, const json& piece, const char* field) {
  if (piece.contains(field)) into[field] = into.value(field, "") + piece[field].get<std::string>();
}

void append_list(json& into, const json& piece, const char* field) {
  for (const json& item : piece.value(field, json::array())) into[field].push_back(item);
}

// The lines of a stream as one object. Calls of a chat must be numbered as they come.
json joined(const std::vector<Sent>& sent) {
  json whole = sent.back().data;
  const bool is_chat = whole.contains("message");
  json texts = {{is_chat ? "content" : "response", ""}};
  for (const Sent& line : sent) {
    const json& piece = is_chat ? line.data["message"] : line.data;
    for (const char* field : {"content", "response", "thinking"}) append(texts, piece, field);
    append_list(texts, piece, "tool_calls");
    if (&line != &sent.back()) append_list(whole, line.data, "logprobs");
  }
  for (size_t i = 0; i < texts.value("tool_calls", json::array()).size(); ++i) {
    FUZZ_CHECK(texts["tool_calls"][i]["function"]["index"] == i);
  }
  (is_chat ? whole["message"] : whole).update(texts);
  return whole;
}

void check(std::string_view body, carat::server::ParsedRequest (*read)(std::string_view)) {
  std::optional<json> streamed, whole;
  const auto check_stream = [&](const std::vector<Sent>& sent, Course course) {
    FUZZ_CHECK(!sent.empty());
    for (const Sent& line : sent) {
      const bool is_last = &line == &sent.back();
      FUZZ_CHECK(line.data.contains("error") == (is_last && course != Course::kEnded));
      if (!line.data.contains("error")) FUZZ_CHECK(line.data["done"] == is_last);
    }
    if (course == Course::kEnded) streamed = joined(sent);
  };
  const auto check_whole = [&](const json& answer) {
    FUZZ_CHECK(answer["done"] == true);
    whole = answer;
  };
  carat::fuzz::check_dialect(body, {read, check_stream, check_whole});
  if (streamed && whole) FUZZ_CHECK(*streamed == *whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check(body, carat::server::read_ollama_chat);
  check(body, carat::server::read_ollama_generate);
  try {
    carat::server::read_ollama_model(body);
  } catch (const carat::server::ApiError&) {
  }
  return 0;
}
