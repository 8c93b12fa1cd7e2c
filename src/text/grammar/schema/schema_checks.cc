// Judging values by a schema, and schemas by each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

namespace {

constexpr int kMaxDisjointDepth = 8;

size_t code_points(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

bool number_fits(const Json& value, const SchemaFacts& facts) {
  if (facts.integer && !is_whole(value)) return false;
  for (const NumberBound& bound : facts.minima) {
    if (value < *bound.value || (bound.excluded && value == *bound.value)) return false;
  }
  for (const NumberBound& bound : facts.maxima) {
    if (*bound.value < value || (bound.excluded && value == *bound.value)) return false;
  }
  for (const SchemaPart& factor : facts.factors) {
    if (!is_whole(*factor.schema) || factor.schema->get<double>() <= 0) {
      fail_at(factor.pointer, "only whole positive numbers are supported");
    }
    if (std::fmod(value.get<double>(), factor.schema->get<double>()) != 0) return false;
  }
  return true;
}

bool string_fits(const Json& value, const SchemaFacts& facts) {
  if (!facts.patterns.empty()) fail_at(facts.patterns[0].pointer, "not supported for values of an enum or const");
  if (!facts.formats.empty()) fail_at(facts.formats[0].pointer, "not supported for values of an enum or const");
  const size_t length = code_points(value.get_ref<const std::string&>());
  return length >= facts.min_length && (!facts.max_length || length <= *facts.max_length);
}

bool array_fits(SchemaDocument& document, const Json& value, const SchemaPart& schema, const SchemaFacts& facts,
                int depth) {
  if (value.size() < facts.min_items || (facts.max_items && value.size() > *facts.max_items)) return false;
  const size_t listed = schema.schema->contains("prefixItems") ? (*schema.schema)["prefixItems"].size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (i < listed) {
      if (!is_valid(document, value[i], SchemaDocument::child(schema, "prefixItems", i), {}, depth + 1)) return false;
    } else if (schema.schema->contains("items")) {
      if (!is_valid(document, value[i], SchemaDocument::child(schema, "items"), {}, depth + 1)) return false;
    }
  }
  if (schema.schema->value("uniqueItems", false)) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (std::find(value.begin() + static_cast<std::ptrdiff_t>(i) + 1, value.end(), value[i]) != value.end())
        return false;
    }
  }
  return true;
}

bool object_fits(SchemaDocument& document, const Json& value, const SchemaPart& schema, const SchemaFacts& facts,
                 int depth) {
  if (value.size() < facts.min_properties || (facts.max_properties && value.size() > *facts.max_properties))
    return false;
  for (const std::string& name : required_names({schema})) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, member] : value.items()) {
    for (const SchemaPart& part : member_schemas({schema}, name)) {
      if (!is_valid(document, member, part, {}, depth + 1)) return false;
    }
  }
  return true;
}

// Apart from references and combinations.
bool fits_keywords(SchemaDocument& document, const Json& value, const SchemaPart& schema, std::span<const Json> listed,
                   int depth) {
  const SchemaFacts facts = facts_of({schema});
  const uint8_t type = type_of(value);
  if ((facts.types & type) == 0) return false;
  const bool is_listed = facts.values.data() == listed.data();
  if (facts.enumerated && !is_listed &&
      std::find(facts.values.begin(), facts.values.end(), value) == facts.values.end()) {
    return false;
  }
  const auto constant = schema.schema->find("const");
  if (constant != schema.schema->end() && *constant != value) return false;
  switch (type) {
    case kNumberType:
      return number_fits(value, facts);
    case kStringType:
      return string_fits(value, facts);
    case kArrayType:
      return array_fits(document, value, schema, facts, depth);
    case kObjectType:
      return object_fits(document, value, schema, facts, depth);
    default:
      return true;
  }
}

bool is_only(const SchemaFacts& facts, uint8_t type) { return facts.types == type; }

bool objects_are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const std::string& name : required_names(*one)) {
      const auto there = document.flatten(member_schemas(*other, name));
      if (!there) return true;  // needed by one, forbidden by the other
      const auto names = required_names(*other);
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      if (are_disjoint(document, member_schemas(*one, name), member_schemas(*other, name), depth + 1)) return true;
    }
  }
  return false;
}

bool numbers_are_disjoint(const SchemaFacts& a, const SchemaFacts& b) {
  for (const auto& [low, high] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const NumberBound& max : low->maxima) {
      for (const NumberBound& min : high->minima) {
        if (*max.value < *min.value || (*max.value == *min.value && (max.excluded || min.excluded))) return true;
      }
    }
  }
  return false;
}

}  // namespace

bool is_valid(SchemaDocument& document, const Json& value, const SchemaPart& schema, std::span<const Json> listed,
              int depth) {
  if (depth > static_cast<int>(kMaxNesting)) fail_at(schema.pointer, "the schema of this value nests too deep");
  const auto flat = document.flatten({schema});
  if (!flat) return false;
  for (const SchemaPart& part : *flat) {
    if (!fits_keywords(document, value, part, listed, depth)) return false;
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!part.schema->contains(keyword)) continue;
      size_t fitting = 0;
      for (size_t i = 0; i < (*part.schema)[keyword].size(); ++i) {
        fitting += is_valid(document, value, SchemaDocument::child(part, keyword, i), listed, depth + 1) ? 1 : 0;
      }
      if (fitting == 0 || (keyword[0] == 'o' && fitting > 1)) return false;
    }
  }
  return true;
}

bool are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth) {
  if (depth > kMaxDisjointDepth) return false;
  const auto flat_a = document.flatten(a), flat_b = document.flatten(b);
  if (!flat_a || !flat_b) return true;
  const SchemaFacts facts_a = facts_of(*flat_a), facts_b = facts_of(*flat_b);
  if ((facts_a.types & facts_b.types) == 0) return true;
  const auto no_value_fits = [&](const SchemaFacts& facts, const Conjunction& other) {
    const auto fits = [&](const Json& value) {
      return std::all_of(other.begin(), other.end(), [&](const auto& part) { return is_valid(document, value, part); });
    };
    return facts.enumerated && std::none_of(facts.values.begin(), facts.values.end(), fits);
  };
  if (no_value_fits(facts_a, b) || no_value_fits(facts_b, a)) return true;
  if (is_only(facts_a, kNumberType) || is_only(facts_b, kNumberType)) return numbers_are_disjoint(facts_a, facts_b);
  if (is_only(facts_a, kObjectType) || is_only(facts_b, kObjectType)) {
    return objects_are_disjoint(document, *flat_a, *flat_b, depth);
  }
  return false;
}

}  // namespace carat::text::grammar
