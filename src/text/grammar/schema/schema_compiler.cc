#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/pattern.h"
#include "text/grammar/schema/schema_document.h"
#include "text/grammar/schema/schema_numbers.h"

namespace carat::text::grammar {

namespace {

// What is written for a format. Narrower than the standards where these are wide.
constexpr std::string_view kDatePattern =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTimePattern =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])";
constexpr std::string_view kHostPattern =
    "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?(?:\\.[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?){1,4}";
constexpr std::string_view kIpv4Pattern =
    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}";

std::optional<std::string> format_pattern(std::string_view name) {
  if (name == "date") return fmt::format("^{}$", kDatePattern);
  if (name == "time") return fmt::format("^{}$", kTimePattern);
  if (name == "date-time") return fmt::format("^{}T{}$", kDatePattern, kTimePattern);
  if (name == "uuid") return "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
  if (name == "email") return fmt::format("^[a-zA-Z0-9]+(?:[._+-][a-zA-Z0-9]+){{0,5}}@{}$", kHostPattern);
  if (name == "hostname") return fmt::format("^{}$", kHostPattern);
  if (name == "ipv4") return fmt::format("^{}$", kIpv4Pattern);
  if (name == "ipv6") return "^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}$";
  if (name == "uri") return fmt::format("^https?://{}(?:/[A-Za-z0-9._~-]{{1,60}}){{0,10}}/?$", kHostPattern);
  return std::nullopt;
}

class SchemaCompiler {
 public:
  SchemaCompiler(std::string_view json, Notation notation) : document_(json), parts_(builder_, notation) {}

  // What is valid under the schema and under `more`.
  Grammar run(const Conjunction& more = {}) {
    const RuleId root = builder_.declare("root", "JSON schema, #");
    Conjunction all = {document_.root()};
    all.insert(all.end(), more.begin(), more.end());
    const ExpressionId whole = schema(all);
    // Rules wait here instead of calling each other, so that no chain of references can exhaust the stack.
    for (; !pending_.empty(); pending_.pop_front()) {
      const Conjunction flat = pending_.front().flat;
      builder_.define(pending_.front().rule, body(flat));
    }
    builder_.define(root, whole);
    return builder_.finish(root);
  }

 private:
  using Key = std::vector<std::pair<const Json*, bool>>;
  struct Pending {
    RuleId rule;
    Conjunction flat;
  };

  // A value that is valid under all `parts`.
  ExpressionId schema(const Conjunction& parts) {
    const auto flat = document_.flatten(parts);
    if (!flat) return builder_.nothing();
    if (flat->empty()) return parts_.value();
    Key key;
    for (const SchemaPart& part : *flat) key.emplace_back(part.schema, part.alternatives_done);
    std::sort(key.begin(), key.end());
    const auto [known, is_new] = rules_.try_emplace(std::move(key), 0);
    if (is_new) {
      const std::string& pointer = flat->front().pointer;
      if (rules_.size() > kMaxSchemaRules) {
        fail_at(pointer, fmt::format("the schema has more than {} combinations of its parts (anyOf and oneOf inside of "
                                     "allOf multiply); make it simpler",
                                     kMaxSchemaRules));
      }
      known->second = builder_.declare(pointer, fmt::format("JSON schema, {}", pointer));
      pending_.push_back({known->second, *flat});
    }
    return builder_.call(known->second);
  }

  ExpressionId body(const Conjunction& flat) {
    const SchemaFacts facts = facts_of(flat);
    if (facts.enumerated) return enumerated(flat, facts);
    for (size_t i = 0; i < flat.size(); ++i) {
      if (flat[i].alternatives_done) continue;
      if (flat[i].schema->contains("anyOf") || flat[i].schema->contains("oneOf")) return alternatives(flat, i);
    }
    uint8_t types = facts.types;
    // Who writes `properties` and no type means an object; and so on.
    const bool one_described = (facts.described & (facts.described - 1)) == 0 && facts.described != 0;
    if (!facts.types_given && one_described) types = facts.described;
    std::vector<ExpressionId> kinds;
    if ((types & kObjectType) != 0) kinds.push_back(object(flat, facts));
    if ((types & kArrayType) != 0) kinds.push_back(array(flat, facts));
    if ((types & kStringType) != 0) kinds.push_back(string(flat, facts));
    if ((types & kNumberType) != 0) kinds.push_back(number_expression(builder_, parts_, facts));
    if ((types & kBooleanType) != 0) kinds.push_back(parts_.boolean());
    if ((types & kNullType) != 0) kinds.push_back(parts_.null());
    return builder_.choice(kinds);
  }

  ExpressionId enumerated(const Conjunction& flat, const SchemaFacts& facts) {
    std::vector<ExpressionId> values;
    for (const Json& value : facts.values) {
      const auto fits = [&](const SchemaPart& part) { return is_valid(document_, value, part, facts.values); };
      if (std::all_of(flat.begin(), flat.end(), fits)) values.push_back(parts_.constant(value));
    }
    return builder_.choice(values);
  }

  ExpressionId alternatives(Conjunction flat, size_t owner) {
    flat[owner].alternatives_done = true;
    const SchemaPart part = flat[owner];
    const bool both = part.schema->contains("anyOf") && part.schema->contains("oneOf");
    if (both) fail_at(part.pointer, "anyOf and oneOf side by side are not supported; put one of them into an allOf");
    const std::string keyword = part.schema->contains("anyOf") ? "anyOf" : "oneOf";
    const size_t count = (*part.schema)[keyword].size();
    if (count > kMaxAlternatives) fail_at(part.pointer, fmt::format("more than {} alternatives", kMaxAlternatives));
    std::vector<ExpressionId> choices;
    for (size_t i = 0; i < count; ++i) {
      const SchemaPart alternative = SchemaDocument::child(part, keyword, i);
      check_progress(flat, alternative);
      for (size_t j = 0; keyword == "oneOf" && j < i; ++j) {
        if (are_disjoint(document_, {alternative}, {SchemaDocument::child(part, keyword, j)})) continue;
        fail_at(alternative.pointer,
                fmt::format("a value might be valid here and in alternative {} too, which oneOf forbids; use anyOf, or "
                            "tell them apart by type or by a required property with a const",
                            j));
      }
      Conjunction combined = flat;
      combined.push_back(alternative);
      choices.push_back(schema(combined));
    }
    return builder_.choice(choices);
  }

  // An alternative that leads back to the choice it belongs to describes nothing.
  void check_progress(const Conjunction& flat, const SchemaPart& alternative) {
    const auto reached = document_.flatten({alternative});
    if (!reached) return;
    for (const SchemaPart& part : *reached) {
      for (const SchemaPart& known : flat) {
        if (known.schema == part.schema && known.alternatives_done) {
          fail_at(alternative.pointer, "the references go round in a circle and describe nothing");
        }
      }
    }
  }

  uint32_t checked_count(uint64_t count, std::string_view keyword, const Conjunction& flat) const {
    if (count > kMaxRepetition)
      fail_at(flat.front().pointer, fmt::format("{} is more than {}", keyword, kMaxRepetition));
    return static_cast<uint32_t>(count);
  }

  ExpressionId string(const Conjunction& flat, const SchemaFacts& facts) {
    const uint32_t min = checked_count(facts.min_length, "minLength", flat);
    uint32_t max = kUnbounded;
    if (facts.max_length) max = static_cast<uint32_t>(std::min<uint64_t>(*facts.max_length, kMaxRepetition));
    std::set<std::string> patterns;
    std::string place;
    for (const SchemaPart& pattern : facts.patterns) {
      patterns.insert(*pattern.schema);
      place = pattern.pointer;
    }
    for (const SchemaPart& format : facts.formats) {
      const auto pattern = format_pattern(format.schema->get_ref<const std::string&>());
      if (!pattern) {
        fail_at(format.pointer,
                fmt::format("the format {} is not supported; there are date, time, date-time, uuid, email, "
                            "hostname, ipv4, ipv6 and uri",
                            format.schema->dump()));
      }
      patterns.insert(*pattern);
      place = format.pointer;
    }
    if (patterns.empty()) return min > max ? builder_.nothing() : parts_.string_of_length(min, max);
    if (patterns.size() > 1) fail_at(place, "only one pattern or format can be assured for a string");
    return string_matching(builder_, parts_, *patterns.begin(), min, max, fmt::format("JSON schema, {}", place));
  }

  ExpressionId array(const Conjunction& flat, const SchemaFacts& facts) {
    size_t listed = 0;
    bool has_items = false;
    for (const SchemaPart& part : flat) {
      if (part.schema->contains("prefixItems")) listed = std::max(listed, (*part.schema)["prefixItems"].size());
      has_items = has_items || part.schema->contains("items");
      if (part.schema->value("uniqueItems", false) && facts.max_items.value_or(2) > 1) {
        fail_at(part.pointer + "/uniqueItems", "cannot be assured token by token; remove it");
      }
    }
    const uint32_t min = checked_count(facts.min_items, "minItems", flat);
    // Nothing is written behind the listed items unless the schema asks for it.
    uint64_t most = facts.max_items.value_or(kUnbounded);
    if (!has_items && listed > 0) most = std::min<uint64_t>(most, std::max<uint64_t>(listed, min));
    const uint32_t max =
        most >= kUnbounded ? kUnbounded : static_cast<uint32_t>(std::min<uint64_t>(most, kMaxRepetition));
    if (min > max) return builder_.nothing();
    ExpressionId tail = rest_of_array(flat, listed, min, max);
    for (size_t i = listed; i > 0; --i) {
      const size_t index = i - 1;
      std::vector<ExpressionId> choices;
      if (index >= min) choices.push_back(builder_.literal("]"));
      if (index < max)
        choices.push_back(builder_.sequence({separator(index), schema(item_schemas(flat, index)), tail}));
      const RuleId rule = builder_.declare(flat.front().pointer, fmt::format("JSON schema, {}", flat.front().pointer));
      builder_.define(rule, builder_.choice(choices));
      tail = builder_.call(rule);
    }
    return builder_.sequence({builder_.literal("["), tail});
  }

  ExpressionId separator(size_t written) { return written == 0 ? builder_.empty() : parts_.comma(); }

  static Conjunction item_schemas(const Conjunction& flat, size_t index) {
    Conjunction schemas;
    for (const SchemaPart& part : flat) {
      if (part.schema->contains("prefixItems") && index < (*part.schema)["prefixItems"].size()) {
        schemas.push_back(SchemaDocument::child(part, "prefixItems", index));
      } else if (part.schema->contains("items")) {
        schemas.push_back(SchemaDocument::child(part, "items"));
      }
    }
    return schemas;
  }

  // The items behind the first `listed`, which are written, and the bracket.
  ExpressionId rest_of_array(const Conjunction& flat, size_t listed, uint32_t min, uint32_t max) {
    const auto before = static_cast<uint32_t>(listed);
    const ExpressionId close = builder_.literal("]");
    if (max <= before) return min <= before ? close : builder_.nothing();
    const ExpressionId item = schema(item_schemas(flat, listed));
    const ExpressionId next = builder_.sequence({parts_.comma(), item});
    const uint32_t needed = min > before ? min - before : 0;
    const uint32_t possible = max == kUnbounded ? kUnbounded : max - before;
    if (before > 0) return builder_.sequence({builder_.repeat(next, needed, possible), close});
    const ExpressionId more =
        builder_.repeat(next, needed > 0 ? needed - 1 : 0, possible == kUnbounded ? kUnbounded : possible - 1);
    const ExpressionId some = builder_.sequence({item, more, close});
    return needed > 0 ? some : builder_.choice({close, some});
  }

  ExpressionId object(const Conjunction& flat, const SchemaFacts& facts) {
    std::vector<std::string> names;
    const auto add_name = [&](const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const SchemaPart& part : flat) {
      const auto properties = part.schema->find("properties");
      if (properties == part.schema->end()) continue;
      for (const auto& [name, value] : properties->items()) add_name(name);
    }
    const bool declares = !names.empty();
    const auto required = required_names(flat);
    for (const std::string& name : required) add_name(name);
    sort_keys(parts_.notation(), names);
    if (names.size() > kMaxProperties) {
      fail_at(flat.front().pointer, fmt::format("more than {} properties", kMaxProperties));
    }

    Members members;
    for (const std::string& name : names) {
      const bool needed = std::find(required.begin(), required.end(), name) != required.end();
      const ExpressionId key = parts_.key(name);
      const ExpressionId value = schema(member_schemas(flat, name));
      members.named.push_back({builder_.sequence({key, parts_.colon(), value}), needed});
    }
    members.other = other_member(flat, names, declares);
    members.min = facts.min_properties;
    members.max = facts.max_properties.value_or(UINT64_MAX);
    const size_t sure = names.size() + (builder_.is_nothing(members.other) ? 0 : 1);
    if (members.min > sure && !builder_.is_nothing(members.other)) {
      fail_at(flat.front().pointer,
              "minProperties is more than can be assured: a model may write a name twice; name "
              "the properties");
    }
    if (members.min > sure) return builder_.nothing();
    return builder_.sequence({builder_.literal("{"), written_members(flat, members)});
  }

  // A member that no schema names. It is written only where the schema says that there may be some, or nothing else.
  ExpressionId other_member(const Conjunction& flat, const std::vector<std::string>& names, bool declares) {
    Conjunction schemas;
    for (const SchemaPart& part : flat) {
      if (part.schema->contains("additionalProperties")) {
        schemas.push_back(SchemaDocument::child(part, "additionalProperties"));
      }
    }
    if (schemas.empty() && (declares || !names.empty())) return builder_.nothing();
    return builder_.sequence({parts_.key_other_than(names), parts_.colon(), schema(schemas)});
  }

  struct Member {
    ExpressionId text;
    bool required;
  };
  struct Members {
    std::vector<Member> named;
    ExpressionId other = 0;
    uint64_t min = 0, max = 0;
  };

  // Rules for "the first i members are dealt with, and n of them are written", from the last one backwards. n stops
  // counting where it makes no difference any more.
  ExpressionId written_members(const Conjunction& flat, const Members& members) {
    const size_t count = members.named.size();
    uint64_t counted = std::max<uint64_t>(1, std::min<uint64_t>(members.min, count + 1));
    if (members.max <= count + 1) counted = std::max(counted, members.max + 1);
    if ((count + 1) * (counted + 1) > kMaxSchemaRules) {
      fail_at(flat.front().pointer, "too many properties for minProperties or maxProperties");
    }
    const std::string place = fmt::format("JSON schema, {}", flat.front().pointer);
    std::vector<RuleId> next(counted + 1), rules(counted + 1);
    for (size_t i = count + 1; i > 0; --i) {
      const size_t index = i - 1;
      for (uint64_t written = 0; written <= counted; ++written) {
        rules[written] = builder_.declare(flat.front().pointer, place);
        builder_.define(rules[written], index == count ? end_of_object(members, written)
                                                       : member(members, index, written, counted, next));
      }
      std::swap(next, rules);
    }
    return builder_.call(next[0]);
  }

  ExpressionId member(const Members& members, size_t index, uint64_t written, uint64_t counted,
                      const std::vector<RuleId>& next) {
    const Member& named = members.named[index];
    std::vector<ExpressionId> choices;
    if (written < members.max) {
      choices.push_back(
          builder_.sequence({separator(written), named.text, builder_.call(next[std::min(written + 1, counted)])}));
    }
    if (!named.required) choices.push_back(builder_.call(next[written]));
    return builder_.choice(choices);
  }

  ExpressionId end_of_object(const Members& members, uint64_t written) {
    const ExpressionId close = builder_.literal("}");
    if (written > members.max || written + 1 < members.min) return builder_.nothing();
    const bool needs_one = written < members.min;
    const ExpressionId none = needs_one ? builder_.nothing() : close;
    if (builder_.is_nothing(members.other) || written >= members.max) return none;
    const uint64_t left =
        members.max == UINT64_MAX ? kUnbounded : std::min<uint64_t>(members.max - written, kMaxRepetition);
    const ExpressionId more = builder_.sequence({parts_.comma(), members.other});
    const auto further = left == kUnbounded ? kUnbounded : static_cast<uint32_t>(left - 1);
    return builder_.choice(
        {none, builder_.sequence({separator(written), members.other, builder_.repeat(more, 0, further), close})});
  }

  SchemaDocument document_;
  GrammarBuilder builder_;
  JsonParts parts_;
  std::map<Key, RuleId> rules_;
  std::deque<Pending> pending_;
};

}  // namespace

Grammar grammar_from_json_schema(std::string_view json) { return SchemaCompiler(json, Notation::kJson).run(); }

Grammar grammar_of_arguments(std::string_view json_schema) {
  static const Json object = {{"type", "object"}};
  return SchemaCompiler(json_schema, Notation::kToolCall).run({{&object, "#", false}});
}

Grammar any_json_grammar() {
  GrammarBuilder builder;
  JsonParts parts(builder);
  const RuleId root = builder.declare("root", "JSON");
  builder.define(root, parts.value());
  return builder.finish(root);
}

}  // namespace carat::text::grammar
