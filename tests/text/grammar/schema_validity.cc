#include "text/grammar/schema_validity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <string_view>

namespace carat::text::grammar::test {

namespace {

using Json = nlohmann::ordered_json;

// They say nothing about validity, or are read together with another keyword.
constexpr std::array<std::string_view, 7> kSilent = {"$schema", "$defs",    "description", "default",
                                                     "title",   "examples", "format"};

bool is_integer(const Json& value) {
  return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
}

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return is_integer(value);
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

size_t characters(const Json& text) {
  const auto& bytes = text.get_ref<const std::string&>();
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  std::string check(const Json& schema, const Json& value, const std::string& place) {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : place + ": nothing is valid here";
    for (const auto& [keyword, argument] : schema.items()) {
      std::string problem = keyword_problem(schema, keyword, argument, value, place);
      if (!problem.empty()) return problem;
    }
    return {};
  }

 private:
  std::string keyword_problem(const Json& schema, const std::string& keyword, const Json& argument, const Json& value,
                              const std::string& place) {
    const auto unless = [&](bool is_fine) { return is_fine ? "" : fmt::format("{}: {}", place, keyword); };
    const bool is_number = value.is_number(), is_text = value.is_string(), is_list = value.is_array();
    if (keyword == "type") return unless(has_type(argument, value));
    if (keyword == "enum") return unless(std::find(argument.begin(), argument.end(), value) != argument.end());
    if (keyword == "const") return unless(argument == value);
    if (keyword == "minimum") return unless(!is_number || value >= argument);
    if (keyword == "maximum") return unless(!is_number || value <= argument);
    if (keyword == "exclusiveMinimum") return unless(!is_number || value > argument);
    if (keyword == "exclusiveMaximum") return unless(!is_number || value < argument);
    if (keyword == "minLength") return unless(!is_text || characters(value) >= argument.get<size_t>());
    if (keyword == "maxLength") return unless(!is_text || characters(value) <= argument.get<size_t>());
    if (keyword == "minItems") return unless(!is_list || value.size() >= argument.get<size_t>());
    if (keyword == "maxItems") return unless(!is_list || value.size() <= argument.get<size_t>());
    if (keyword == "pattern") return unless(!is_text || matches(argument, value));
    if (keyword == "items") return items_problem(argument, value, place);
    if (keyword == "properties" || keyword == "additionalProperties") return members_problem(schema, value, place);
    if (keyword == "required") return required_problem(argument, value, place);
    if (keyword == "propertyNames") return unless(argument == Json{{"type", "string"}});  // names are strings
    if (keyword == "anyOf") return unless(is_any_valid(argument, value, place));
    if (keyword == "$ref") return check(resolved(argument), value, place);
    if (std::find(kSilent.begin(), kSilent.end(), keyword) != kSilent.end()) return {};
    return fmt::format("{}: the test does not know {}", place, keyword);
  }

  static bool has_type(const Json& types, const Json& value) {
    if (types.is_string()) return is_of_type(value, types.get<std::string>());
    return std::any_of(types.begin(), types.end(),
                       [&](const Json& type) { return is_of_type(value, type.get<std::string>()); });
  }

  static bool matches(const Json& pattern, const Json& value) {
    return std::regex_search(value.get<std::string>(), std::regex(pattern.get<std::string>()));
  }

  static std::string required_problem(const Json& names, const Json& value, const std::string& place) {
    for (const Json& name : names) {
      if (value.is_object() && !value.contains(name)) return fmt::format("{}: no {}", place, name.get<std::string>());
    }
    return {};
  }

  std::string items_problem(const Json& items, const Json& value, const std::string& place) {
    for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
      std::string problem = check(items, value[i], fmt::format("{}[{}]", place, i));
      if (!problem.empty()) return problem;
    }
    return {};
  }

  bool is_any_valid(const Json& alternatives, const Json& value, const std::string& place) {
    return std::any_of(alternatives.begin(), alternatives.end(),
                       [&](const Json& each) { return check(each, value, place).empty(); });
  }

  const Json& resolved(const Json& reference) const {
    return root_.at(Json::json_pointer(reference.get<std::string>().substr(1)));
  }

  std::string members_problem(const Json& schema, const Json& value, const std::string& place) {
    if (!value.is_object()) return {};
    const Json named = schema.value("properties", Json::object());
    for (const auto& [name, member] : value.items()) {
      const Json others = schema.value("additionalProperties", Json(true));
      const Json& rule = named.contains(name) ? named.at(name) : others;
      std::string problem = check(rule, member, fmt::format("{}/{}", place, name));
      if (!problem.empty()) return problem;
    }
    return {};
  }

  const Json& root_;
};

}  // namespace

std::string violation(const Json& schema, const Json& value) { return Validator(schema).check(schema, value, "#"); }

}  // namespace carat::text::grammar::test
