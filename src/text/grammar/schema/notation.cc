#include "text/grammar/schema/notation.h"

#include <algorithm>
#include <utility>

#include "text/grammar/grammar_builder.h"
#include "text/letter_case.h"
#include "text/tools/tool_call_parser.h"

namespace carat::text::grammar {

namespace {

using Ranges = std::vector<CodePointRange>;

// What the reader of calls takes for the end of a key, for white space, a quote or a bracket.
constexpr std::string_view kNoKeyOfACall = "\"'(),:=[]{}";

Ranges ranges_of(std::string_view ascii) {
  Ranges ranges;
  for (const char c : ascii) ranges.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
  return ranges;
}

bool is_white_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::optional<std::string> key_of_a_call(std::string_view name) {
  if (name.empty() || is_white_space(name.front()) || is_white_space(name.back())) return std::nullopt;
  const auto is_plain = [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte >= ' ' && byte != 0x7f && kNoKeyOfACall.find(c) == std::string_view::npos;
  };
  if (std::all_of(name.begin(), name.end(), is_plain)) return std::string(name);
  return kStringDelimiter + std::string(name) + kStringDelimiter;
}

std::optional<std::string> object_of_a_call(const Json& value) {
  std::vector<std::string> names;
  for (const auto& [name, member] : value.items()) names.push_back(name);
  sort_keys(Notation::kToolCall, names);
  std::string text = "{";
  for (const std::string& name : names) {
    const auto key = key_of_a_call(name);
    const auto member = written_value(Notation::kToolCall, value.at(name));
    if (!key || !member) return std::nullopt;
    if (text.size() > 1) text += ',';
    text += *key + ':' + *member;
  }
  return text + '}';
}

}  // namespace

char string_quote(Notation notation) { return notation == Notation::kJson ? '"' : kStringDelimiter; }

const Ranges& plain_characters(Notation notation) {
  static const Ranges json = complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  static const Ranges call = complement({});
  return notation == Notation::kJson ? json : call;
}

const Ranges& key_characters(Notation notation) {
  static const Ranges call = [] {
    Ranges excluded = ranges_of(kNoKeyOfACall);
    excluded.insert(excluded.end(), {{0, ' '}, {0x7f, 0x7f}});
    return complement(normalised(std::move(excluded)));
  }();
  return notation == Notation::kJson ? plain_characters(notation) : call;
}

std::optional<std::string> written_key(Notation notation, std::string_view name) {
  return notation == Notation::kJson ? Json(name).dump() : key_of_a_call(name);
}

std::optional<std::string> written_value(Notation notation, const Json& value) {
  if (notation == Notation::kJson) return value.dump();
  if (value.is_string()) return kStringDelimiter + value.get<std::string>() + kStringDelimiter;
  if (value.is_object()) return object_of_a_call(value);
  if (!value.is_array()) return value.dump();
  std::string text = "[";
  for (const Json& item : value) {
    const auto written = written_value(notation, item);
    if (!written) return std::nullopt;
    if (text.size() > 1) text += ',';
    text += *written;
  }
  return text + ']';
}

void sort_keys(Notation notation, std::vector<std::string>& names) {
  if (notation == Notation::kJson) return;
  std::vector<std::pair<std::string, std::string>> keyed;
  for (std::string& name : names) keyed.emplace_back(to_lower(name), std::move(name));
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::move(keyed[i].second);
}

}  // namespace carat::text::grammar
