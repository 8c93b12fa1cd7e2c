#include "text/grammar/schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "text/grammar/limits.h"

namespace carat::text::grammar {

namespace {

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool contains(std::initializer_list<std::string_view> names, std::string_view name) {
  return contains(std::span(names.begin(), names.size()), name);
}

constexpr std::string_view kAnnotations[] = {
    "title",       "description", "default",          "examples",         "example",
    "$schema",     "$id",         "$comment",         "deprecated",       "readOnly",
    "writeOnly",   "$defs",       "definitions",      "contentMediaType", "contentEncoding",
    "$vocabulary", "$anchor",     "propertyOrdering", "externalDocs",     "contentSchema"};
constexpr std::string_view kSupported[] = {"type",
                                           "enum",
                                           "const",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "items",
                                           "minItems",
                                           "maxItems",
                                           "prefixItems",
                                           "minProperties",
                                           "maxProperties",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "$ref",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "nullable",
                                           "multipleOf",
                                           "uniqueItems",
                                           "unevaluatedProperties",
                                           "unevaluatedItems"};

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// Keywords that say nothing in this form, so that ignoring them changes nothing.
bool is_harmless(std::string_view name, const Json& value) {
  if (name == "uniqueItems" || name == "nullable") return value == false;
  if (name == "unevaluatedProperties" || name == "unevaluatedItems") return value == true;
  return false;
}

void check_shape(const SchemaPart& part, std::string_view name, const Json& value) {
  const std::string pointer = fmt::format("{}/{}", part.pointer, escaped(name));
  if (contains({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}, name)) {
    if (!value.is_number_unsigned()) fail_at(pointer, "expected a whole number that is not negative");
  } else if (contains({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}, name)) {
    if (!value.is_number()) fail_at(pointer, "expected a number");
  } else if (contains({"anyOf", "oneOf", "allOf", "prefixItems"}, name)) {
    if (!value.is_array() || value.empty()) fail_at(pointer, "expected a list of schemas with at least one");
    if (value.size() > kMaxProperties) fail_at(pointer, fmt::format("more than {} schemas", kMaxProperties));
  } else if (name == "enum") {
    if (!value.is_array()) fail_at(pointer, "expected a list of values");
    if (value.size() > kMaxEnumeratedValues) fail_at(pointer, fmt::format("more than {} values", kMaxEnumeratedValues));
  } else if (name == "properties") {
    if (!value.is_object()) fail_at(pointer, "expected an object with a schema for each name");
    if (value.size() > kMaxProperties) fail_at(pointer, fmt::format("more than {} properties", kMaxProperties));
    for (const auto& [key, schema] : value.items()) {
      if (key.size() > kMaxNameBytes) fail_at(pointer, fmt::format("a name of more than {} bytes", kMaxNameBytes));
    }
  } else if (name == "required") {
    const auto is_name = [](const Json& each) {
      return each.is_string() && each.get_ref<const std::string&>().size() <= kMaxNameBytes;
    };
    if (!value.is_array() || value.size() > kMaxProperties || !std::all_of(value.begin(), value.end(), is_name)) {
      fail_at(pointer, fmt::format("expected a list of at most {} names", kMaxProperties));
    }
  } else if (contains({"pattern", "format", "$ref"}, name)) {
    if (!value.is_string()) fail_at(pointer, "expected a text");
  } else if (name == "items" && value.is_array()) {
    fail_at(pointer, "a list of schemas is called prefixItems since draft 2020-12");
  } else if (name == "uniqueItems" && !value.is_boolean()) {
    fail_at(pointer, "expected true or false");
  }
}

void check_keywords(const SchemaPart& part) {
  for (const auto& [name, value] : part.schema->items()) {
    if (contains(kAnnotations, name) || name.starts_with("x-") || is_harmless(name, value)) continue;
    const std::string pointer = fmt::format("{}/{}", part.pointer, escaped(name));
    if (!contains(kSupported, name)) {
      fail_at(pointer,
              fmt::format("the keyword {} is not supported; remove it (a note of your own may be called x-...)",
                          Json(name).dump()));
    }
    if (contains({"nullable", "unevaluatedProperties", "unevaluatedItems"}, name)) {
      fail_at(pointer, name == "nullable" ? "nullable is no part of JSON Schema; add \"null\" to the type"
                                          : fmt::format("{} is not supported in this form; use additionalProperties or "
                                                        "items",
                                                        name));
    }
    check_shape(part, name, value);
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
  facts.types_given = true;
  facts.integer = facts.integer || (whole && !any_number);
}

template <typename T>
void lower(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

void add_keyword(const SchemaPart& part, const std::string& name, const Json& value, SchemaFacts& facts) {
  const std::string pointer = fmt::format("{}/{}", part.pointer, escaped(name));
  const auto number = [&] { return value.get<uint64_t>(); };
  if (name == "type") {
    add_types(part, value, facts);
  } else if (name == "minimum" || name == "exclusiveMinimum") {
    facts.minima.push_back({&value, name[0] == 'e', pointer});
  } else if (name == "maximum" || name == "exclusiveMaximum") {
    facts.maxima.push_back({&value, name[0] == 'e', pointer});
  } else if (name == "multipleOf") {
    facts.factors.push_back({&value, pointer, false});
  } else if (name == "minLength") {
    facts.min_length = std::max(facts.min_length, number());
  } else if (name == "maxLength") {
    lower(facts.max_length, number());
  } else if (name == "minItems") {
    facts.min_items = std::max(facts.min_items, number());
  } else if (name == "maxItems") {
    lower(facts.max_items, number());
  } else if (name == "minProperties") {
    facts.min_properties = std::max(facts.min_properties, number());
  } else if (name == "maxProperties") {
    lower(facts.max_properties, number());
  } else if (name == "pattern") {
    facts.patterns.push_back({&value, pointer, false});
  } else if (name == "format") {
    facts.formats.push_back({&value, pointer, false});
  }
}

uint8_t type_described_by(std::string_view name) {
  if (contains({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}, name)) return kNumberType;
  if (contains({"minLength", "maxLength", "pattern", "format"}, name)) return kStringType;
  if (contains({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}, name)) return kArrayType;
  if (contains({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}, name)) {
    return kObjectType;
  }
  return 0;
}

}  // namespace

void fail_at(std::string_view pointer, const std::string& problem) {
  fail(ErrorCode::kBadArgument, "JSON schema, {}: {}", pointer, problem);
}

uint8_t type_of(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_number()) return kNumberType;
  if (value.is_string()) return kStringType;
  return value.is_array() ? kArrayType : kObjectType;
}

SchemaDocument::SchemaDocument(std::string_view json) {
  if (json.size() > kMaxSourceBytes) {
    fail(ErrorCode::kBadArgument, "the JSON schema has {} bytes, more than the {} it may have", json.size(),
         kMaxSourceBytes);
  }
  const auto check_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > static_cast<int>(kMaxNesting)) {
      fail(ErrorCode::kBadArgument, "the JSON schema nests more than {} deep", kMaxNesting);
    }
    return true;
  };
  try {
    document_ = Json::parse(json.begin(), json.end(), check_depth);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kBadArgument, "the JSON schema is no valid JSON: {}", error.what());
  }
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword) {
  return {&(*part.schema)[std::string(keyword)], fmt::format("{}/{}", part.pointer, keyword), false};
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword, std::string_view name) {
  return {&(*part.schema)[std::string(keyword)][std::string(name)],
          fmt::format("{}/{}/{}", part.pointer, keyword, escaped(name)), false};
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword, size_t index) {
  return {&(*part.schema)[std::string(keyword)][index], fmt::format("{}/{}/{}", part.pointer, keyword, index), false};
}

SchemaPart SchemaDocument::resolve(const SchemaPart& part) const {
  const auto& reference = (*part.schema)["$ref"].get_ref<const std::string&>();
  const std::string pointer = part.pointer + "/$ref";
  if (reference != "#" && !reference.starts_with("#/")) {
    fail_at(pointer,
            fmt::format("{} is not inside of this document; only references like \"#/$defs/name\" are supported",
                        Json(reference).dump()));
  }
  if (reference.find('%') != std::string::npos) fail_at(pointer, "percent signs in references are not supported");
  try {
    return {&document_.at(Json::json_pointer(reference.substr(1))), reference, false};
  } catch (const Json::exception&) {
    fail_at(pointer, fmt::format("there is no {} in this document", Json(reference).dump()));
  }
}

std::optional<Conjunction> SchemaDocument::flatten(const Conjunction& parts) {
  Conjunction flat;
  std::vector<const Json*> path;
  for (const SchemaPart& part : parts) {
    if (!collect(part, path, flat)) return std::nullopt;
  }
  return flat;
}

bool SchemaDocument::collect(const SchemaPart& part, std::vector<const Json*>& path, Conjunction& out) {
  if (++steps_ > kMaxSchemaSteps) fail_at(part.pointer, "the schema takes too long to work through; make it simpler");
  if (part.schema->is_boolean()) return part.schema->get<bool>();
  if (!part.schema->is_object()) fail_at(part.pointer, "a schema is an object, true or false");
  if (std::find(path.begin(), path.end(), part.schema) != path.end()) {
    fail_at(part.pointer, "the references go round in a circle and describe nothing");
  }
  if (path.size() > kMaxNesting) fail_at(part.pointer, fmt::format("more than {} references in a row", kMaxNesting));
  for (SchemaPart& known : out) {
    if (known.schema != part.schema) continue;
    known.alternatives_done = known.alternatives_done || part.alternatives_done;
    return true;
  }
  if (checked_.insert(part.schema).second) check_keywords(part);
  path.push_back(part.schema);
  out.push_back(part);
  bool possible = true;
  if (part.schema->contains("$ref")) possible = collect(resolve(part), path, out);
  if (part.schema->contains("allOf")) {
    for (size_t i = 0; i < (*part.schema)["allOf"].size(); ++i) {
      possible = collect(child(part, "allOf", i), path, out) && possible;
    }
  }
  path.pop_back();
  return possible;
}

SchemaFacts facts_of(const Conjunction& flat) {
  SchemaFacts facts;
  for (const SchemaPart& part : flat) {
    for (const auto& [name, value] : part.schema->items()) {
      if (!is_harmless(name, value)) facts.described = static_cast<uint8_t>(facts.described | type_described_by(name));
      add_keyword(part, name, value, facts);
      if (facts.enumerated || (name != "enum" && name != "const")) continue;
      facts.enumerated = true;
      facts.values = name == "const" ? std::span(&value, 1) : std::span(value.get_ref<const Json::array_t&>());
    }
  }
  return facts;
}

Conjunction member_schemas(const Conjunction& flat, const std::string& name) {
  Conjunction schemas;
  for (const SchemaPart& part : flat) {
    const auto properties = part.schema->find("properties");
    if (properties != part.schema->end() && properties->contains(name)) {
      schemas.push_back(SchemaDocument::child(part, "properties", name));
    } else if (part.schema->contains("additionalProperties")) {
      schemas.push_back(SchemaDocument::child(part, "additionalProperties"));
    }
  }
  return schemas;
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
