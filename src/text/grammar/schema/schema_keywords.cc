// What keywords must look like, and what they say about a value on the whole.
#include "text/grammar/schema/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "text/grammar/limits.h"

namespace carat::text::grammar {

namespace {

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool contains(std::initializer_list<std::string_view> names, std::string_view name) {
  return contains(std::span(names.begin(), names.size()), name);
}

constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "examples",
                                             "example",
                                             "$schema",
                                             "$id",
                                             "id",
                                             "$comment",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$defs",
                                             "definitions",
                                             "contentMediaType",
                                             "contentEncoding",
                                             "$vocabulary",
                                             "$anchor",
                                             "$dynamicAnchor",
                                             "propertyOrdering",
                                             "externalDocs",
                                             "contentSchema",
                                             "markdownDescription",
                                             "enumNames",
                                             "enumDescriptions",
                                             "discriminator",
                                             "xml",
                                             "$recursiveAnchor"};
constexpr std::string_view kCounts[] = {"minItems",      "maxItems",      "minLength",   "maxLength",
                                        "minProperties", "maxProperties", "minContains", "maxContains"};
constexpr std::string_view kLists[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
constexpr std::string_view kMaps[] = {"properties", "patternProperties", "dependentSchemas", "dependentRequired",
                                      "dependencies"};
constexpr std::string_view kOthers[] = {"type",
                                        "enum",
                                        "const",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "pattern",
                                        "format",
                                        "$ref",
                                        "not",
                                        "if",
                                        "$dynamicRef",
                                        "uniqueItems",
                                        "propertyNames",
                                        "contains",
                                        "unevaluatedProperties",
                                        "unevaluatedItems"};

bool is_name(const Json& each) {
  return each.is_string() && each.get_ref<const std::string&>().size() <= kMaxNameBytes;
}

void check_names(const Json& value, const std::string& pointer) {
  if (!value.is_array() || value.size() > kMaxProperties || !std::all_of(value.begin(), value.end(), is_name)) {
    fail_at(pointer, fmt::format("expected a list of at most {} names", kMaxProperties));
  }
}

void check_count(const Json& value, const std::string& pointer) {
  const bool is_whole = value.is_number_unsigned() ||
                        (value.is_number_float() && value.get<double>() >= 0 && value.get<double>() < 1e18 &&
                         static_cast<double>(static_cast<uint64_t>(value.get<double>())) == value.get<double>());
  if (!is_whole) fail_at(pointer, "expected a whole number that is not negative");
}

void check_map(std::string_view name, const Json& value, const std::string& pointer) {
  if (!value.is_object()) fail_at(pointer, "expected an object with a schema for each name");
  if (value.size() > kMaxProperties) fail_at(pointer, fmt::format("more than {} properties", kMaxProperties));
  for (const auto& [key, each] : value.items()) {
    if (name != "patternProperties" && key.size() > kMaxNameBytes) {
      fail_at(pointer, fmt::format("a name of more than {} bytes", kMaxNameBytes));
    }
    if (name == "dependentRequired" || (name == "dependencies" && each.is_array())) {
      check_names(each, fmt::format("{}/{}", pointer, escaped_name(key)));
    }
  }
}

void check_shape(std::string_view name, const Json& value, const std::string& pointer, int draft) {
  if (contains(kCounts, name)) {
    check_count(value, pointer);
  } else if (contains({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}, name)) {
    const bool is_flag = draft == 4 && name[0] == 'e' && value.is_boolean();
    if (!value.is_number() && !is_flag) fail_at(pointer, "expected a number");
    if (name == "multipleOf" && !(value.get<double>() > 0)) fail_at(pointer, "expected a number above 0");
  } else if (contains(kLists, name)) {
    if (!value.is_array() || value.empty()) fail_at(pointer, "expected a list of schemas with at least one");
    if (value.size() > kMaxProperties) fail_at(pointer, fmt::format("more than {} schemas", kMaxProperties));
  } else if (contains(kMaps, name)) {
    check_map(name, value, pointer);
  } else if (name == "enum") {
    if (!value.is_array()) fail_at(pointer, "expected a list of values");
    if (value.size() > kMaxEnumeratedValues) fail_at(pointer, fmt::format("more than {} values", kMaxEnumeratedValues));
  } else if (name == "required") {
    if (!value.is_boolean()) check_names(value, pointer);  // draft 3 had flags here
    if (value.is_boolean()) fail_at(pointer, "expected a list of names");
  } else if (contains({"pattern", "format", "$ref", "$dynamicRef"}, name)) {
    if (!value.is_string()) fail_at(pointer, "expected a text");
  } else if (name == "uniqueItems" && !value.is_boolean()) {
    fail_at(pointer, "expected true or false");
  }
}

uint8_t type_named(const Json& name, const std::string& pointer) {
  static constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kNames = {{{"null", kNullType},
                                                                                  {"boolean", kBooleanType},
                                                                                  {"number", kNumberType},
                                                                                  {"integer", kNumberType},
                                                                                  {"string", kStringType},
                                                                                  {"array", kArrayType},
                                                                                  {"object", kObjectType}}};
  if (name.is_string()) {
    for (const auto& [text, bits] : kNames) {
      if (text == name.get_ref<const std::string&>()) return bits;
    }
  }
  fail_at(pointer, "expected null, boolean, integer, number, string, array or object, or a list of these");
}

void add_types(const SchemaPart& part, const Json& value, SchemaFacts& facts) {
  const std::string pointer = part.pointer + "/type";
  if (value.is_array() && value.empty()) fail_at(pointer, "the list of types is empty");
  uint8_t types = 0;
  bool whole = false, any_number = false;
  for (const Json& name : value.is_array() ? value : Json::array({value})) {
    types |= type_named(name, pointer);
    whole = whole || name == "integer";
    any_number = any_number || name == "number";
  }
  facts.types &= types;
  facts.integer = facts.integer || (whole && !any_number);
}

template <typename T>
void lower(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

uint64_t count_of(const Json& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<double>());
}

// Draft 4 has flags: "exclusiveMinimum": true says something about "minimum".
void add_bound(const SchemaPart& part, const std::string& name, const Json& value, SchemaFacts& facts) {
  if (value.is_boolean()) return;
  const std::string pointer = fmt::format("{}/{}", part.pointer, name);
  const bool is_minimum = name.ends_with("inimum");
  const auto flag = part.schema->find(is_minimum ? "exclusiveMinimum" : "exclusiveMaximum");
  const bool is_flagged = flag != part.schema->end() && flag->is_boolean() && flag->get<bool>();
  (is_minimum ? facts.minima : facts.maxima).push_back({&value, name[0] == 'e' || is_flagged, pointer});
}

void add_keyword(const SchemaPart& part, const std::string& name, const Json& value, SchemaFacts& facts) {
  const auto here = [&] { return SchemaPart{&value, fmt::format("{}/{}", part.pointer, escaped_name(name))}; };
  if (name == "type") {
    add_types(part, value, facts);
  } else if (contains({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}, name)) {
    add_bound(part, name, value, facts);
  } else if (name == "multipleOf") {
    facts.factors.push_back(here());
  } else if (name == "minLength") {
    facts.min_length = std::max(facts.min_length, count_of(value));
  } else if (name == "maxLength") {
    lower(facts.max_length, count_of(value));
  } else if (name == "minItems") {
    facts.min_items = std::max(facts.min_items, count_of(value));
  } else if (name == "maxItems") {
    lower(facts.max_items, count_of(value));
  } else if (name == "minProperties") {
    facts.min_properties = std::max(facts.min_properties, count_of(value));
  } else if (name == "maxProperties") {
    lower(facts.max_properties, count_of(value));
  } else if (name == "pattern") {
    facts.patterns.push_back(here());
  } else if (name == "$carat:notPattern") {
    facts.not_patterns.push_back(here());
  } else if (name == "format") {
    facts.formats.push_back(here());
  } else if (name == "uniqueItems") {
    facts.unique = facts.unique || value == true;
  } else if (name == "$carat:fraction") {
    facts.fraction = true;
  } else if (name == "$carat:exclude") {
    for (const Json& each : value) facts.excluded.push_back(&each);
  } else if (name == "$carat:absent") {
    for (const Json& each : value) facts.absent.insert(each.get<std::string>());
  }
}

}  // namespace

bool is_assertion(std::string_view name) {
  return contains(kCounts, name) || contains(kLists, name) || contains(kMaps, name) || contains(kOthers, name) ||
         name.ends_with("inimum") || name.ends_with("aximum") || name == "multipleOf" ||
         contains({"then", "else", "additionalItems"}, name);
}

void check_keywords(SchemaDocument& document, const SchemaPart& part, int draft) {
  if (document.hides_siblings(*part.schema)) {
    return check_shape("$ref", (*part.schema)["$ref"], part.pointer + "/$ref", draft);
  }
  for (const auto& [name, value] : part.schema->items()) {
    if (name.starts_with("$carat:") || name.starts_with("x-")) continue;
    const std::string pointer = fmt::format("{}/{}", part.pointer, escaped_name(name));
    check_shape(name, value, pointer, draft);
    if (contains(kAnnotations, name) || is_assertion(name)) continue;
    if (name == "nullable") {
      if (value == true) {
        document.note(
            fmt::format("{}: nullable is no part of JSON Schema, so null is not written; add \"null\" to the "
                        "type",
                        pointer));
      }
      continue;
    }
    if (name == "$recursiveRef") fail_at(pointer, "$recursiveRef is not supported; use $dynamicRef or $ref");
    document.note(
        fmt::format("{}: {} is no keyword of JSON Schema and has no effect (a note of your own may be called "
                    "x-...)",
                    pointer, Json(name).dump()));
  }
}

uint8_t type_of(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_number()) return kNumberType;
  if (value.is_string()) return kStringType;
  return value.is_array() ? kArrayType : kObjectType;
}

bool SchemaFacts::excludes(const Json& value) const {
  return std::any_of(excluded.begin(), excluded.end(), [&](const Json* each) { return same_value(*each, value); });
}

// `flat` may also hold choices: their anyOf says nothing by itself.
SchemaFacts facts_of(const Conjunction& flat) {
  SchemaFacts facts;
  for (const SchemaPart& part : flat) {
    for (const auto& [name, value] : part.schema->items()) {
      add_keyword(part, name, value, facts);
      if (facts.enumerated || (name != "enum" && name != "const")) continue;
      facts.enumerated = true;
      facts.list = &value;
      facts.values = name == "const" ? std::span(&value, 1) : std::span(value.get_ref<const Json::array_t&>());
    }
  }
  return facts;
}

std::vector<std::string> required_names(const Conjunction& flat) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  for (const SchemaPart& part : flat) {
    const auto required = part.schema->find("required");
    if (required == part.schema->end()) continue;
    for (const Json& name : *required) {
      const auto& text = name.get_ref<const std::string&>();
      if (seen.insert(text).second) names.push_back(text);
    }
  }
  return names;
}

}  // namespace carat::text::grammar
