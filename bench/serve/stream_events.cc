#include "serve/stream_events.h"

#include <array>
#include <nlohmann/json.hpp>

namespace carat::serve_bench {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMessage = 200;

std::string_view without_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// What follows `"name":`, from each place where that stands, until `matches` takes it. Empty where none does.
template <typename Matches>
std::string_view value_of(std::string_view json, std::string_view quoted_name, const Matches& matches) {
  for (size_t at = json.find(quoted_name); at != std::string_view::npos; at = json.find(quoted_name, at + 1)) {
    std::string_view value = without_space(json.substr(at + quoted_name.size()));
    if (!value.starts_with(':')) continue;
    value = without_space(value.substr(1));
    if (matches(value)) return value;
  }
  return {};
}

bool is_filled_text(std::string_view value) { return value.size() > 1 && value[0] == '"' && value[1] != '"'; }

bool is_filled_list(std::string_view value) {
  return value.starts_with('[') && !without_space(value.substr(1)).starts_with(']');
}

bool is_something(std::string_view value) { return value.starts_with('{') || value.starts_with('"'); }

// From behind the opening quote to the closing one.
std::string_view inside_of_text(std::string_view value) {
  for (size_t i = 1; i < value.size(); ++i) {
    if (value[i] == '\\') {
      ++i;
    } else if (value[i] == '"') {
      return value.substr(1, i - 1);
    }
  }
  return {};
}

}  // namespace

ChunkFacts read_chunk(std::string_view json) {
  ChunkFacts facts;
  facts.has_usage = !value_of(json, "\"usage\"", [](std::string_view v) { return v.starts_with('{'); }).empty();
  facts.is_of_answer = !value_of(json, "\"choices\"", is_filled_list).empty();
  if (!facts.is_of_answer) {
    facts.has_error = !value_of(json, "\"error\"", is_something).empty();
    return facts;
  }
  for (const std::string_view name : {"\"content\"", "\"text\""}) {
    const std::string_view value = value_of(json, name, is_filled_text);
    if (value.empty()) continue;
    facts.has_text = true;
    facts.answer = inside_of_text(value);
    break;
  }
  if (!facts.has_text) {
    for (const std::string_view name : {"\"reasoning_content\"", "\"reasoning\"", "\"arguments\""}) {
      if (!value_of(json, name, is_filled_text).empty()) facts.has_text = true;
    }
    if (!value_of(json, "\"tool_calls\"", is_filled_list).empty()) facts.has_text = true;
  }
  facts.is_last = !value_of(json, "\"finish_reason\"", is_filled_text).empty();
  return facts;
}

std::optional<UsageFacts> read_usage(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto usage = object.find("usage");
  if (usage == object.end() || !usage->is_object()) return std::nullopt;
  const auto number = [](const Json& parent, const char* name) -> uint32_t {
    const auto found = parent.find(name);
    return found != parent.end() && found->is_number_unsigned() ? found->get<uint32_t>() : 0;
  };
  UsageFacts facts{number(*usage, "prompt_tokens"), number(*usage, "completion_tokens")};
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object()) facts.cached_tokens = number(*details, "cached_tokens");
  return facts;
}

std::string error_message(std::string_view body) {
  std::string text(body.substr(0, kMaxMessage));
  const Json object = Json::parse(body, nullptr, false);
  if (object.is_object()) {
    const auto error = object.find("error");
    if (error != object.end() && error->is_string()) text = error->get<std::string>();
    if (error != object.end() && error->is_object() && error->contains("message") && (*error)["message"].is_string()) {
      text = (*error)["message"].get<std::string>();
    }
  }
  return text.substr(0, kMaxMessage);
}

}  // namespace carat::serve_bench
