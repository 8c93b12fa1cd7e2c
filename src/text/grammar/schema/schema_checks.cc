// Judging values by a schema, and schemas by each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_document.h"
#include "text/grammar/schema/schema_numbers.h"

namespace carat::text::grammar {

namespace {

constexpr int kMaxDisjointDepth = 8;
constexpr int kMaxDepth = 300;  // a value nests less than kMaxNesting; references add to that

bool is_listed(std::span<const Json> list, const Json& value) {
  return std::any_of(list.begin(), list.end(), [&](const Json& each) { return same_value(each, value); });
}

std::span<const Json> items_of(const Json& list) { return list.get_ref<const Json::array_t&>(); }

size_t code_points(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

uint64_t count_in(const Json& schema, const char* keyword, uint64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  return value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<double>());
}

// The members and items that some schema spoke about.
struct Evaluated {
  std::set<std::string> names;
  std::set<size_t> items;

  void add(const Evaluated& other) {
    names.insert(other.names.begin(), other.names.end());
    items.insert(other.items.begin(), other.items.end());
  }
};

// Judges one value. `strict_`: see is_valid().
class Judge {
 public:
  Judge(SchemaDocument& document, bool strict, std::string* problem, const Json* listed = nullptr)
      : document_(document), strict_(strict), problem_(problem), listed_(listed) {}

  bool valid(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    document_.count_step(part.pointer);
    if (++depth_ > kMaxDepth) fail_at(part.pointer, "the schema of this value nests too deep");
    const bool result = fits(value, part, place, evaluated);
    --depth_;
    return result;
  }

 private:
  bool wrong(const std::string& place, const SchemaPart& part, std::string_view keyword) {
    if (problem_ != nullptr && problem_->empty()) {
      *problem_ = fmt::format("the value at {} does not fit {}/{}", place.empty() ? "#" : place, part.pointer, keyword);
    }
    return false;
  }

  // Whether another judge finds it valid: what is wrong there is not what is wrong here.
  bool holds(const Json& value, const SchemaPart& part, const std::string& place, bool strict, Evaluated& evaluated) {
    Judge other(document_, strict, nullptr);
    other.depth_ = depth_;
    Evaluated more;
    if (!other.valid(value, part, place, more)) return false;
    evaluated.add(more);
    return true;
  }
  bool holds(const Json& value, const SchemaPart& part, const std::string& place, bool strict) {
    Evaluated unused;
    return holds(value, part, place, strict, unused);
  }
  bool other_place(const Json& value, const SchemaPart& part, const std::string& place) {
    Evaluated unused;
    return valid(value, part, place, unused);
  }

  bool fits(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    if (schema.is_boolean()) return schema.get<bool>() || wrong(place, part, "false");
    if (!schema.is_object()) fail_at(part.pointer, "a schema is an object, true or false");
    document_.check(part);
    if (schema.contains("$carat:part"))
      return valid(value, document_.referred(schema["$carat:part"]), place, evaluated);
    if (schema.contains("$carat:not")) {
      return !holds(value, document_.referred(schema["$carat:not"]), place, !strict_) || wrong(place, part, "not");
    }
    if (document_.hides_siblings(schema)) return valid(value, document_.resolve(part, "$ref"), place, evaluated);
    return plain_keywords(value, part, place) && applicators(value, part, place, evaluated) &&
           (!value.is_object() || members(value, part, place, evaluated)) &&
           (!value.is_array() || items(value, part, place, evaluated));
  }

  bool plain_keywords(const Json& value, const SchemaPart& part, const std::string& place) {
    const SchemaFacts facts = facts_of({part});
    const Json& schema = *part.schema;
    if ((facts.types & type_of(value)) == 0) return wrong(place, part, "type");
    if (schema.contains("const") && !same_value(schema["const"], value)) return wrong(place, part, "const");
    if (schema.contains("enum") && &schema["enum"] != listed_ && !is_listed(items_of(schema["enum"]), value)) {
      return wrong(place, part, "enum");
    }
    if (facts.excludes(value)) return wrong(place, part, "const");
    if (value.is_number()) return number(value, part, facts, place);
    if (value.is_string()) return string(value, part, facts, place);
    return true;
  }

  bool number(const Json& value, const SchemaPart& part, const SchemaFacts& facts, const std::string& place) {
    if (facts.integer && !is_whole(value)) return wrong(place, part, "type");
    if (facts.fraction && is_whole(value)) return wrong(place, part, "type");
    for (const NumberBound& bound : facts.minima) {
      if (value < *bound.value || (bound.excluded && value == *bound.value)) return wrong(place, part, "minimum");
    }
    for (const NumberBound& bound : facts.maxima) {
      if (*bound.value < value || (bound.excluded && value == *bound.value)) return wrong(place, part, "maximum");
    }
    for (const SchemaPart& factor : facts.factors) {
      if (!is_multiple(value, *factor.schema)) return wrong(place, part, "multipleOf");
    }
    return true;
  }

  bool string(const Json& value, const SchemaPart& part, const SchemaFacts& facts, const std::string& place) {
    const auto& text = value.get_ref<const std::string&>();
    const size_t length = code_points(text);
    if (length < facts.min_length) return wrong(place, part, "minLength");
    if (facts.max_length && length > *facts.max_length) return wrong(place, part, "maxLength");
    for (const SchemaPart& pattern : facts.patterns) {
      if (!document_.text_set(*pattern.schema, pattern.pointer).contains(text)) return wrong(place, part, "pattern");
    }
    for (const SchemaPart& pattern : facts.not_patterns) {
      if (document_.text_set(*pattern.schema, pattern.pointer).contains(text)) return wrong(place, part, "pattern");
    }
    for (const SchemaPart& format : facts.formats) {
      const auto pattern = format_pattern(format.schema->get_ref<const std::string&>());
      if (!strict_ || !pattern) continue;
      if (!document_.text_set(*pattern, format.pointer).contains(text)) return wrong(place, part, "format");
    }
    return true;
  }

  bool applicators(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    for (const char* keyword : {"$ref", "$dynamicRef"}) {
      if (!schema.contains(keyword)) continue;
      if (!valid(value, document_.resolve(part, keyword), place, evaluated)) return false;
    }
    for (size_t i = 0; schema.contains("allOf") && i < schema["allOf"].size(); ++i) {
      if (!valid(value, document_.child(part, "allOf", i), place, evaluated)) return false;
    }
    if (schema.contains("not") && holds(value, document_.child(part, "not"), place, !strict_)) {
      return wrong(place, part, "not");
    }
    if (schema.contains("anyOf")) {
      size_t fitting = 0;
      for (size_t i = 0; i < schema["anyOf"].size(); ++i) {
        fitting += holds(value, document_.child(part, "anyOf", i), place, strict_, evaluated) ? 1 : 0;
      }
      if (fitting == 0) return wrong(place, part, "anyOf");
    }
    if (schema.contains("oneOf")) {
      size_t certain = 0, possible = 0;
      for (size_t i = 0; i < schema["oneOf"].size(); ++i) {
        const SchemaPart each = document_.child(part, "oneOf", i);
        certain += holds(value, each, place, true, evaluated) ? 1 : 0;
        possible += holds(value, each, place, false) ? 1 : 0;
      }
      const bool is_one = strict_ ? certain == 1 && possible == 1 : certain <= 1 && possible >= 1;
      if (!is_one) return wrong(place, part, "oneOf");
    }
    return condition(value, part, place, evaluated) && dependencies(value, part, place, evaluated);
  }

  bool condition(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    if (!schema.contains("if")) return true;
    const SchemaPart test = document_.child(part, "if");
    const auto then_holds = [&] {
      return !schema.contains("then") || valid(value, document_.child(part, "then"), place, evaluated);
    };
    const auto else_holds = [&] {
      return !schema.contains("else") || valid(value, document_.child(part, "else"), place, evaluated);
    };
    const bool certain = holds(value, test, place, true, evaluated), possible = holds(value, test, place, false);
    if (certain == possible) return certain ? then_holds() : else_holds();
    if (strict_) return then_holds() && else_holds();
    return then_holds() || else_holds();
  }

  bool dependencies(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      if (!schema.contains(keyword) || !value.is_object()) continue;
      for (const auto& [name, each] : schema[keyword].items()) {
        if (!value.contains(name)) continue;
        if (!each.is_array()) {
          if (!valid(value, document_.child(part, keyword, name), place, evaluated)) return false;
          continue;
        }
        for (const Json& other : each) {
          if (!value.contains(other.get<std::string>())) return wrong(place, part, keyword);
        }
      }
    }
    return true;
  }

  bool members(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    const SchemaFacts facts = facts_of({part});
    if (value.size() < facts.min_properties) return wrong(place, part, "minProperties");
    if (facts.max_properties && value.size() > *facts.max_properties) return wrong(place, part, "maxProperties");
    for (const std::string& name : required_names({part})) {
      if (!value.contains(name)) return wrong(place, part, "required");
    }
    for (const std::string& name : facts.absent) {
      if (value.contains(name)) return wrong(place, part, "required");
    }
    bool some = !schema.contains("$carat:some");
    for (const auto& [name, member] : value.items()) {
      const std::string here = fmt::format("{}/{}", place, escaped_name(name));
      if (schema.contains("propertyNames") && !other_place(name, document_.child(part, "propertyNames"), here)) {
        return false;
      }
      if (!some && document_.some_has_name(part, name)) {
        some = !schema["$carat:some"].contains("value") ||
               holds(member, document_.child(part, "$carat:some", "value"), here, strict_);
      }
      bool is_named = false;
      for (const SchemaPart& each : named_member(part, name, is_named)) {
        if (!other_place(member, each, here)) return false;
      }
      if (is_named) evaluated.names.insert(name);
      if (!schema.contains("unevaluatedProperties") || evaluated.names.contains(name)) continue;
      if (!other_place(member, document_.child(part, "unevaluatedProperties"), here)) return false;
    }
    if (schema.contains("unevaluatedProperties")) {
      for (const auto& [name, member] : value.items()) evaluated.names.insert(name);
    }
    return some || wrong(place, part, "not");
  }

  Conjunction named_member(const SchemaPart& part, const std::string& name, bool& is_named) {
    const Json& schema = *part.schema;
    Conjunction schemas;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      schemas.push_back(document_.child(part, "properties", name));
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, each] : schema["patternProperties"].items()) {
        if (!document_.text_set(pattern, part.pointer).contains(name)) continue;
        schemas.push_back(document_.child(part, "patternProperties", pattern));
      }
    }
    if (schemas.empty() && schema.contains("additionalProperties")) {
      schemas.push_back(document_.child(part, "additionalProperties"));
    }
    is_named = !schemas.empty();
    return schemas;
  }

  bool items(const Json& value, const SchemaPart& part, const std::string& place, Evaluated& evaluated) {
    const Json& schema = *part.schema;
    const SchemaFacts facts = facts_of({part});
    if (value.size() < facts.min_items) return wrong(place, part, "minItems");
    if (facts.max_items && value.size() > *facts.max_items) return wrong(place, part, "maxItems");
    const auto prefix = prefix_keyword(schema), rest = rest_keyword(schema);
    const size_t listed = prefix.empty() ? 0 : schema[std::string(prefix)].size();
    size_t contained = 0, perhaps_contained = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string here = fmt::format("{}/{}", place, i);
      if (i < listed) {
        if (!other_place(value[i], document_.child(part, prefix, i), here)) return false;
        evaluated.items.insert(i);
      } else if (!rest.empty()) {
        if (!other_place(value[i], document_.child(part, rest), here)) return false;
        evaluated.items.insert(i);
      }
      if (schema.contains("contains")) {
        const SchemaPart kind = document_.child(part, "contains");
        if (holds(value[i], kind, here, strict_)) {
          ++contained;
          evaluated.items.insert(i);
        }
        perhaps_contained += schema.contains("maxContains") && holds(value[i], kind, here, !strict_) ? 1 : 0;
      }
      if (!facts.unique) continue;
      if (is_listed(items_of(value).first(i), value[i])) return wrong(place, part, "uniqueItems");
    }
    if (schema.contains("contains")) {
      if (contained < count_in(schema, "minContains", 1)) return wrong(place, part, "contains");
      if (perhaps_contained > count_in(schema, "maxContains", UINT64_MAX)) return wrong(place, part, "maxContains");
    }
    for (size_t i = 0; schema.contains("unevaluatedItems") && i < value.size(); ++i) {
      if (evaluated.items.contains(i)) continue;
      if (!other_place(value[i], document_.child(part, "unevaluatedItems"), fmt::format("{}/{}", place, i)))
        return false;
      evaluated.items.insert(i);
    }
    return true;
  }

  SchemaDocument& document_;
  bool strict_;
  std::string* problem_;
  const Json* listed_;  // an enum in which the value is known to be
  int depth_ = 0;
};

bool is_only(const SchemaFacts& facts, uint8_t type) { return facts.types == type; }

bool objects_are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const SchemaFacts facts = facts_of(*other);
    for (const std::string& name : required_names(*one)) {
      if (facts.absent.contains(name)) return true;
      const Conjunction there = document.member_schemas(*other, name);
      if (!document.flatten(there)) return true;  // needed by one, forbidden by the other
      const auto names = required_names(*other);
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      if (are_disjoint(document, document.member_schemas(*one, name), there, depth + 1)) return true;
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
  return (a.integer && b.fraction) || (a.fraction && b.integer);
}

}  // namespace

bool same_value(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    const auto is_same = [&](const auto& member) {
      const auto other = b.find(member.key());
      return other != b.end() && same_value(member.value(), *other);
    };
    if (a.size() != b.size()) return false;
    for (auto member = a.begin(); member != a.end(); ++member) {
      if (!is_same(member)) return false;
    }
    return true;
  }
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
}

bool is_valid(SchemaDocument& document, const Json& value, const SchemaPart& schema, bool strict, std::string* problem,
              const Json* listed) {
  Evaluated evaluated;
  return Judge(document, strict, problem, listed).valid(value, schema, "#", evaluated);
}

bool are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth) {
  if (depth > kMaxDisjointDepth) return false;
  const auto flat_a = document.flatten(a), flat_b = document.flatten(b);
  if (!flat_a || !flat_b) return true;
  const SchemaFacts facts_a = facts_of(*flat_a), facts_b = facts_of(*flat_b);
  if ((facts_a.types & facts_b.types) == 0) return true;
  const auto no_value_fits = [&](const SchemaFacts& facts, const Conjunction& other) {
    const auto fits = [&](const Json& value) {
      return std::all_of(other.begin(), other.end(),
                         [&](const auto& part) { return is_valid(document, value, part, false); });
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
