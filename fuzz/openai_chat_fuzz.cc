// Bodies of POST /v1/chat/completions: each is refused by name of the field, or its answers are whole and in order.
#include "server/api/openai/chat.h"

#include <cstdint>
#include <map>
#include <string_view>

#include "fuzz_check.h"
#include "reply_check.h"

namespace {

using carat::fuzz::Course;
using carat::fuzz::Sent;
using nlohmann::json;

// What is known of a choice while its chunks come.
struct Choice {
  bool has_role = false, has_ended = false;
  int64_t calls = 0;
};

void check_choice(const json& sent, Choice& choice) {
  const json& delta = sent["delta"];
  FUZZ_CHECK(!choice.has_ended && delta.is_object());
  FUZZ_CHECK(delta.contains("role") != choice.has_role);  // first, and once
  if (choice.has_role && delta.contains("content")) FUZZ_CHECK(!delta["content"].get<std::string>().empty());
  choice.has_role = true;
  for (const json& call : delta.value("tool_calls", json::array())) {
    FUZZ_CHECK(call["index"] == choice.calls++ && call["id"].is_string());
    const bool is_custom = call["type"] == "custom";
    const json& made = is_custom ? call["custom"]["input"] : call["function"]["arguments"];
    FUZZ_CHECK(made.is_string());
  }
  if (sent["finish_reason"].is_null()) return;
  choice.has_ended = true;
  FUZZ_CHECK(delta.empty());
}

void check_stream(const std::vector<Sent>& sent, Course course) {
  FUZZ_CHECK(!sent.empty());
  FUZZ_CHECK((sent.back().data == "[DONE]") == (course == Course::kEnded));
  FUZZ_CHECK(sent.back().data.contains("error") == (course != Course::kEnded));
  std::map<int64_t, Choice> choices;
  bool has_usage = false;
  for (size_t i = 0; i + 1 < sent.size(); ++i) {
    const json& data = sent[i].data;
    FUZZ_CHECK(sent[i].name.empty() && data["object"] == "chat.completion.chunk" && data["id"] == "id_1" && !has_usage);
    for (const json& choice : data["choices"]) check_choice(choice, choices[choice["index"].get<int64_t>()]);
    has_usage = data.contains("usage");
  }
  FUZZ_CHECK(has_usage == (course == Course::kEnded));
  for (const auto& [index, choice] : choices) FUZZ_CHECK(choice.has_ended || course != Course::kEnded);
}

void check_whole(const json& body) {
  FUZZ_CHECK(body["object"] == "chat.completion" && !body["choices"].empty() && body["usage"].is_object());
  for (const json& choice : body["choices"]) {
    FUZZ_CHECK(choice["message"].contains("content") && choice["finish_reason"].is_string());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  carat::fuzz::check_dialect(std::string_view(reinterpret_cast<const char*>(data), size),
                             {carat::server::read_openai_chat, check_stream, check_whole});
  return 0;
}
