// Keywords that say something about several schemas at once, and what it means not to be valid, in terms of choices
// between plain keywords. A choice may be narrower than what it stands for: what cannot be said is left out of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

namespace {

constexpr size_t kMaxCompared = 16;  // oneOfs that are looked at inside of each other
constexpr size_t kMaxCombined = 4;   // alternatives of an anyOf whose combinations are tried for unevaluated...

const Json kNotNumbers = {"null", "boolean", "string", "array", "object"};

Json some_member(Json conditions) { return {{"type", "object"}, {"$carat:some", std::move(conditions)}}; }

// Types that `types` does not name; of numbers the fractions where it names integers only.
std::vector<Json> other_types(const Json& types) {
  static constexpr std::array<const char*, 6> kTypes = {"null", "boolean", "number", "string", "array", "object"};
  const Json list = types.is_array() ? types : Json::array({types});
  const auto is_named = [&](std::string_view type) { return std::find(list.begin(), list.end(), type) != list.end(); };
  Json others = Json::array();
  for (const char* type : kTypes) {
    const bool is_integer_only = std::string_view(type) == "number" && !is_named("number") && is_named("integer");
    if (!is_named(type) && !is_integer_only) others.push_back(type);
  }
  std::vector<Json> result;
  if (!others.empty()) result.push_back({{"type", others}});
  if (is_named("integer") && !is_named("number")) result.push_back({{"type", "number"}, {"$carat:fraction", true}});
  return result;
}

uint64_t count_in(const Json& schema, const char* keyword, uint64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  return value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<double>());
}

}  // namespace

template <typename Make>
SchemaPart SchemaDocument::made(const SchemaPart& part, const std::string& keyword, bool is_choice, Make&& make) {
  const MadeKey key = {part.schema, part.scope, keyword};
  auto known = made_by_key_.find(key);
  if (known == made_by_key_.end()) {
    Json json = make();
    made_.push_back(std::move(json));
    if (made_.size() > kMaxSchemaRules) fail_at(part.pointer, "the schema has too many combinations; make it simpler");
    const Json* stored = &made_.back();
    if (is_choice && stored->is_object() && stored->contains("anyOf")) choices_.insert(stored);
    known = made_by_key_.emplace(key, stored).first;
  }
  return {known->second, part.pointer, false, part.scope, part.owners};
}

SchemaPart SchemaDocument::evaluated_or(const SchemaPart& otherwise, const Conjunction& contained) {
  std::string key = "unevaluatedItems";
  for (const SchemaPart& part : contained) key += fmt::format(" {}", refer(part));
  return made(otherwise, key, true, [&] {
    Json alternatives = Json::array({positive(otherwise)});
    for (const SchemaPart& part : contained) alternatives.push_back(positive(part));
    return Json{{"anyOf", alternatives}};
  });
}

size_t SchemaDocument::refer(const SchemaPart& part) {
  const auto [found, is_new] = part_numbers_.try_emplace({part.schema, part.scope}, parts_.size());
  if (is_new) parts_.push_back({part.schema, part.pointer, false, part.scope, 0});
  return found->second;
}

// --- choices
// -----------------------------------------------------------------------------------------------------------

SchemaPart SchemaDocument::any_of(const SchemaPart& part) {
  const size_t count = (*part.schema)["anyOf"].size();
  // Where it matters which alternatives a value is valid under, it may be valid under several.
  const bool combined = part.owners != 0 && count <= kMaxCombined;
  return made(part, combined ? "anyOf, combined" : "anyOf", true, [&] {
    Json alternatives = Json::array();
    if (!combined) {
      for (size_t i = 0; i < count; ++i) alternatives.push_back(positive(child(part, "anyOf", i)));
    }
    for (size_t set = 1; combined && set < size_t{1} << count; ++set) {
      Json all = Json::array();
      for (size_t i = 0; i < count; ++i) {
        if ((set >> i & 1) != 0) all.push_back(positive(child(part, "anyOf", i)));
      }
      alternatives.push_back({{"allOf", all}});
    }
    return Json{{"anyOf", alternatives}};
  });
}

// Alternatives are told apart by their members, which may come back to this oneOf, or lead to many others. Then nothing
// is said of these: all the less is certain about being apart.
SchemaPart SchemaDocument::one_of(const SchemaPart& part) {
  static const Json kAnything = true;
  const bool is_known = made_by_key_.contains(MadeKey{part.schema, part.scope, "oneOf"});
  const std::pair key(part.schema, part.scope);
  if (!is_known && (comparing_.size() >= kMaxCompared || comparing_.contains(key))) return {&kAnything, part.pointer};
  return made(part, "oneOf", true, [&] {
    comparing_.insert(key);
    const size_t count = (*part.schema)["oneOf"].size();
    if (count > kMaxAlternatives) fail_at(part.pointer, fmt::format("more than {} alternatives", kMaxAlternatives));
    std::vector<SchemaPart> parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(child(part, "oneOf", i));
    std::vector<Json> alternatives;
    for (const SchemaPart& each : parts) alternatives.push_back(Json::array({positive(each)}));
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (are_disjoint(*this, {parts[i]}, {parts[j]})) continue;
        alternatives[i].push_back(negative(parts[j]));
        alternatives[j].push_back(negative(parts[i]));
      }
    }
    comparing_.erase(key);
    Json all = Json::array();
    for (Json& each : alternatives) all.push_back(each.size() == 1 ? each[0] : Json{{"allOf", std::move(each)}});
    return Json{{"anyOf", all}};
  });
}

SchemaPart SchemaDocument::condition(const SchemaPart& part) {
  const bool has_then = part.schema->contains("then"), has_else = part.schema->contains("else");
  // Without both it only matters for what is evaluated.
  return made(part, part.owners != 0 ? "if, evaluated" : "if", true, [&] {
    if (!has_then && !has_else && part.owners == 0) return Json(true);
    const SchemaPart test = child(part, "if");
    Json yes = Json::array({positive(test)}), no = Json::array({negative(test)});
    if (has_then) yes.push_back(positive(child(part, "then")));
    if (has_else) no.push_back(positive(child(part, "else")));
    return Json{{"anyOf", Json::array({Json{{"allOf", yes}}, Json{{"allOf", no}}})}};
  });
}

SchemaPart SchemaDocument::dependency(const SchemaPart& part, std::string_view keyword, const std::string& name) {
  return made(part, fmt::format("{} {}", keyword, name), true, [&] {
    const Json& value = (*part.schema)[std::string(keyword)][name];
    const Json absent = {{"$carat:absent", Json::array({name})}};
    Json names = Json::array({name});
    if (!value.is_array()) {
      const Json present = {{"type", "object"}, {"required", names}};
      const Json all = Json::array({present, positive(child(part, keyword, name))});
      return Json{{"anyOf", Json::array({absent, Json{{"allOf", all}}})}};
    }
    for (const Json& each : value) names.push_back(each);
    return Json{{"anyOf", Json::array({absent, Json{{"type", "object"}, {"required", names}}})}};
  });
}

// --- what is not valid
// -------------------------------------------------------------------------------------------------

SchemaPart SchemaDocument::negated(const SchemaPart& given) {
  SchemaPart part = given;
  part.owners = 0;
  while (part.schema->is_object() && part.schema->contains("$carat:part")) {
    const SchemaPart next = referred((*part.schema)["$carat:part"]);
    part = next;
  }
  if (part.schema->is_object() && part.schema->contains("$carat:not")) {
    SchemaPart next = referred((*part.schema)["$carat:not"]);
    next.owners = 0;
    return next;
  }
  return made(part, "not", true, [&] { return negation(part); });
}

Json SchemaDocument::negation(const SchemaPart& part) {
  const Json& schema = *part.schema;
  if (schema.is_boolean()) return !schema.get<bool>();
  if (!schema.is_object()) fail_at(part.pointer, "a schema is an object, true or false");
  check(part);
  std::vector<Json> cases;
  if (hides_siblings(schema)) return negative(resolve(part, "$ref"));
  negate_values(part, cases);
  negate_applicators(part, cases);
  negate_object(part, cases);
  negate_array(part, cases);
  if (cases.empty()) return false;
  if (cases.size() == 1) return cases[0];
  return {{"anyOf", cases}};
}

// A value that is none of `values`.
Json SchemaDocument::different_from(const SchemaPart& part, const std::vector<Json>& values) {
  Json plain = Json::array(), all = Json::array();
  std::vector<Json> numbers;
  for (size_t i = 0; i < values.size(); ++i) {
    const Json& value = values[i];
    if (value.is_number()) {
      numbers.push_back(value);
    } else if (value.is_structured()) {
      Json same = {{"type", value.is_array() ? "array" : "object"}};
      if (value.is_array()) {
        same["minItems"] = value.size();
        same["maxItems"] = value.size();
        for (const Json& item : value) same["prefixItems"].push_back({{"const", item}});
      } else {
        same["required"] = Json::array();
        same["maxProperties"] = value.size();
        for (const auto& [name, member] : value.items()) {
          same["required"].push_back(name);
          same["properties"][name] = {{"const", member}};
        }
      }
      all.push_back(negative(made(part, "value " + value.dump(), false, [&] { return same; })));
    } else {
      plain.push_back(value);
    }
  }
  if (!plain.empty()) all.push_back({{"$carat:exclude", plain}});
  if (!numbers.empty()) {
    std::sort(numbers.begin(), numbers.end());
    Json between = Json::array({Json{{"type", kNotNumbers}}});
    for (size_t i = 0; i <= numbers.size(); ++i) {
      Json range = {{"type", "number"}};
      if (i > 0) range["exclusiveMinimum"] = numbers[i - 1];
      if (i < numbers.size()) range["exclusiveMaximum"] = numbers[i];
      between.push_back(std::move(range));
    }
    all.push_back({{"anyOf", between}});
  }
  return {{"allOf", all}};
}

void SchemaDocument::negate_values(const SchemaPart& part, std::vector<Json>& out) {
  const Json& schema = *part.schema;
  if (schema.contains("type")) {
    for (Json& other : other_types(schema["type"])) out.push_back(std::move(other));
  }
  if (schema.contains("const")) out.push_back(different_from(part, {schema["const"]}));
  if (schema.contains("enum") && schema["enum"].is_array()) {
    out.push_back(schema["enum"].empty() ? Json(true) : different_from(part, schema["enum"].get<std::vector<Json>>()));
  }
  if (schema.contains("$carat:exclude")) out.push_back({{"enum", schema["$carat:exclude"]}});
  const SchemaFacts facts = facts_of({part});
  for (const NumberBound& bound : facts.minima) {
    out.push_back({{"type", "number"}, {bound.excluded ? "maximum" : "exclusiveMaximum", *bound.value}});
  }
  for (const NumberBound& bound : facts.maxima) {
    out.push_back({{"type", "number"}, {bound.excluded ? "minimum" : "exclusiveMinimum", *bound.value}});
  }
  if (facts.min_length > 0) out.push_back({{"type", "string"}, {"maxLength", facts.min_length - 1}});
  if (facts.max_length) out.push_back({{"type", "string"}, {"minLength", *facts.max_length + 1}});
  for (const SchemaPart& pattern : facts.patterns) {
    out.push_back({{"type", "string"}, {"$carat:notPattern", *pattern.schema}});
  }
  for (const SchemaPart& pattern : facts.not_patterns)
    out.push_back({{"type", "string"}, {"pattern", *pattern.schema}});
  if (facts.fraction) out.push_back({{"type", "integer"}});
  for (const char* keyword : {"format", "uniqueItems", "multipleOf", "unevaluatedItems", "unevaluatedProperties"}) {
    if (!schema.contains(keyword) || (keyword[0] == 'u' && schema[keyword] == false && keyword[2] == 'i')) continue;
    note(fmt::format("{}: what does not fit {} is not written where a not, oneOf, if or the like asks for it",
                     part.pointer, keyword));
  }
}

void SchemaDocument::negate_applicators(const SchemaPart& part, std::vector<Json>& out) {
  const Json& schema = *part.schema;
  for (const char* keyword : {"$ref", "$dynamicRef"}) {
    if (schema.contains(keyword)) out.push_back(negative(resolve(part, keyword)));
  }
  if (schema.contains("not")) out.push_back(positive(child(part, "not")));
  if (schema.contains("allOf")) {
    for (size_t i = 0; i < schema["allOf"].size(); ++i) out.push_back(negative(child(part, "allOf", i)));
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    Json none = Json::array();
    for (size_t i = 0; i < schema[keyword].size(); ++i) none.push_back(negative(child(part, keyword, i)));
    out.push_back({{"allOf", none}});
  }
  if (schema.contains("oneOf")) {
    for (size_t i = 0; i < schema["oneOf"].size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Json both = Json::array({positive(child(part, "oneOf", j)), positive(child(part, "oneOf", i))});
        out.push_back({{"allOf", both}});
      }
    }
  }
  if (!schema.contains("if")) return;
  const SchemaPart test = child(part, "if");
  if (schema.contains("then")) {
    out.push_back({{"allOf", Json::array({positive(test), negative(child(part, "then"))})}});
  }
  if (schema.contains("else")) {
    out.push_back({{"allOf", Json::array({negative(test), negative(child(part, "else"))})}});
  }
}

void SchemaDocument::negate_object(const SchemaPart& part, std::vector<Json>& out) {
  const Json& schema = *part.schema;
  const SchemaFacts facts = facts_of({part});
  if (facts.min_properties > 0) out.push_back({{"type", "object"}, {"maxProperties", facts.min_properties - 1}});
  if (facts.max_properties) out.push_back({{"type", "object"}, {"minProperties", *facts.max_properties + 1}});
  for (const std::string& name : required_names({part})) {
    out.push_back({{"type", "object"}, {"$carat:absent", Json::array({name})}});
  }
  for (const std::string& name : facts.absent) out.push_back({{"type", "object"}, {"required", Json::array({name})}});
  Json names = Json::array(), patterns = Json::array();
  if (schema.contains("properties")) {
    for (const auto& [name, each] : schema["properties"].items()) {
      names.push_back(name);
      if (each == true) continue;
      out.push_back({{"type", "object"},
                     {"required", Json::array({name})},
                     {"properties", {{name, negative(child(part, "properties", name))}}}});
    }
  }
  if (schema.contains("patternProperties")) {
    for (const auto& [pattern, each] : schema["patternProperties"].items()) {
      patterns.push_back(pattern);
      out.push_back(
          some_member({{"pattern", pattern}, {"value", negative(child(part, "patternProperties", pattern))}}));
    }
  }
  if (schema.contains("additionalProperties")) {
    out.push_back(some_member(
        {{"without", names}, {"withoutPatterns", patterns}, {"value", negative(child(part, "additionalProperties"))}}));
  }
  if (schema.contains("propertyNames")) {
    out.push_back(some_member({{"name", negative(child(part, "propertyNames"))}}));
  }
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword) || (keyword == std::string_view("dependencies") && resources_.draft() > 7)) continue;
    for (const auto& [name, value] : schema[keyword].items()) {
      const Json present = {{"type", "object"}, {"required", Json::array({name})}};
      if (!value.is_array()) {
        out.push_back({{"allOf", Json::array({present, negative(child(part, keyword, name))})}});
        continue;
      }
      for (const Json& other : value) {
        Json missing = present;
        missing["$carat:absent"] = Json::array({other});
        out.push_back(std::move(missing));
      }
    }
  }
}

void SchemaDocument::negate_array(const SchemaPart& part, std::vector<Json>& out) {
  const Json& schema = *part.schema;
  const SchemaFacts facts = facts_of({part});
  if (facts.min_items > 0) out.push_back({{"type", "array"}, {"maxItems", facts.min_items - 1}});
  if (facts.max_items) out.push_back({{"type", "array"}, {"minItems", *facts.max_items + 1}});
  const auto prefix = prefix_keyword(schema), rest = rest_keyword(schema);
  const size_t listed = prefix.empty() ? 0 : schema[std::string(prefix)].size();
  const bool is_old = prefix == "items" && resources_.draft() > 2019;  // means nothing in this draft
  const auto item_at = [&](size_t index, const SchemaPart& item) {
    Json items = Json::array();
    for (size_t i = 0; i < index; ++i) items.push_back(true);
    items.push_back(negative(item));
    out.push_back({{"type", "array"}, {"minItems", index + 1}, {"prefixItems", items}});
  };
  for (size_t i = 0; i < listed && !is_old; ++i) item_at(i, child(part, prefix, i));
  if (!rest.empty() && !is_old) {
    if (listed > 0) {
      item_at(listed, child(part, rest));
    } else {
      out.push_back({{"type", "array"}, {"contains", negative(child(part, rest))}});
    }
  }
  if (!schema.contains("contains")) return;
  const SchemaPart contained = child(part, "contains");
  const uint64_t min = count_in(schema, "minContains", 1);
  if (min == 1) out.push_back({{"type", "array"}, {"items", negative(contained)}});
  if (min > 1) {
    out.push_back({{"type", "array"}, {"contains", positive(contained)}, {"minContains", 0}, {"maxContains", min - 1}});
  }
  if (schema.contains("maxContains")) {
    const uint64_t max = count_in(schema, "maxContains", 0);
    out.push_back({{"type", "array"}, {"contains", positive(contained)}, {"minContains", max + 1}});
  }
}

}  // namespace carat::text::grammar
