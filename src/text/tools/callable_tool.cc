#include "text/tools/callable_tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/token_trie.h"
#include "text/tools/tool_call_parser.h"

namespace carat::text {

namespace {

using Json = nlohmann::ordered_json;

// Why no call can have this name; empty when one can.
std::string problem_of_name(std::string_view name, const grammar::TokenTrie& trie) {
  if (!is_call_name(name)) return fmt::format("calls cannot have the name \"{}\"", name);
  for (const char c : fmt::format("call:{}", name)) {
    if (!trie.single_bytes().test(static_cast<uint8_t>(c))) {
      return fmt::format("the vocabulary has no token for the character '{}' of a call", c);
    }
  }
  return {};
}

// A schema that names no members means that there are none, although any would be valid: who declares a tool so would
// not know what to do with them.
Json without_invented_members(Json schema) {
  constexpr std::array<std::string_view, 6> kOthers = {
      "additionalProperties", "allOf", "anyOf", "oneOf", "$ref", "required"};
  const auto is_given = [&](std::string_view keyword) { return schema.contains(keyword); };
  if (schema.is_null()) schema = {{"type", "object"}, {"properties", Json::object()}};
  if (!schema.is_object() || std::any_of(kOthers.begin(), kOthers.end(), is_given)) return schema;
  const auto properties = schema.find("properties");
  if (properties != schema.end() && properties->is_object() && properties->empty()) {
    schema["additionalProperties"] = false;
  }
  return schema;
}

std::string parameters_of(const Tool& tool) {
  const Json json = Json::parse(tool.json);
  const Json& function = json.contains("function") ? json.at("function") : json;
  return without_invented_members(function.value("parameters", Json())).dump();
}

}  // namespace

CallableTool callable_tool(const Tool& tool, const std::shared_ptr<const grammar::TokenTrie>& trie) {
  CallableTool result{tool.name, nullptr, problem_of_name(tool.name, *trie)};
  if (!result.problem.empty()) return result;
  try {
    result.arguments = grammar::compile(grammar::grammar_of_arguments(parameters_of(tool)), trie);
    return result;
  } catch (const Error& error) {
    result.problem = error.what();
  } catch (const Json::exception& error) {
    result.problem = fmt::format("the tool is not readable JSON: {}", error.what());
  }
  try {
    result.arguments = grammar::compile(grammar::grammar_of_arguments(R"({"type": "object"})"), trie);
  } catch (const Error& error) {  // a vocabulary without the marks of calls
    result.problem = error.what();
  }
  return result;
}

}  // namespace carat::text
