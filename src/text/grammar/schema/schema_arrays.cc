// Arrays under a schema.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_compiler.h"

namespace carat::text::grammar {

namespace {

constexpr size_t kMaxCountedRules = 5000;
constexpr size_t kMaxContains = 4;

uint64_t count_in(const Json& schema, const char* keyword, uint64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  return value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<double>());
}

}  // namespace

struct SchemaCompiler::Items {
  // So many items are of this kind.
  struct Contained {
    SchemaPart kind;
    uint32_t min, max;
  };

  const Conjunction& flat;
  bool canonical;  // the array
  bool unique;     // the items are different
  size_t listed = 0;
  uint32_t min = 0, max = kUnbounded;
  std::vector<Contained> contained;
};

ExpressionId SchemaCompiler::array(const Conjunction& flat, const SchemaFacts& facts, bool canonical) {
  Items items{flat, canonical, facts.unique && facts.max_items.value_or(2) > 1, 0, 0, kUnbounded, {}};
  bool has_rest = !is_closed();
  for (const SchemaPart& part : flat) {
    const auto prefix = prefix_keyword(*part.schema);
    if (!prefix.empty()) items.listed = std::max(items.listed, (*part.schema)[std::string(prefix)].size());
    has_rest = has_rest || !rest_keyword(*part.schema).empty() || part.schema->contains("unevaluatedItems");
    if (!part.schema->contains("contains")) continue;
    const uint64_t least = count_in(*part.schema, "minContains", 1);
    const uint64_t most = count_in(*part.schema, "maxContains", kUnbounded);
    if (least > most) return builder_.nothing();
    if (least == 0 && most >= kUnbounded) continue;
    items.contained.push_back({document_.child(part, "contains"), checked_count(least, "minContains", flat),
                               static_cast<uint32_t>(std::min<uint64_t>(most, kUnbounded))});
    has_rest = true;
  }
  items.min = checked_count(facts.min_items, "minItems", flat);
  // Nothing is written behind the listed items unless the schema asks for it.
  uint64_t most = facts.max_items.value_or(kUnbounded);
  if (!has_rest && items.listed > 0) most = std::min<uint64_t>(most, std::max<uint64_t>(items.listed, items.min));
  if (items.unique && canonical) {
    // One array of different items inside of another: what is different in the inner one is not followed.
    if (items.min > 1) {
      fail_at(flat.front().pointer, "uniqueItems with minItems inside of the items of another uniqueItems");
    }
    builder_.add_note(fmt::format("{}: uniqueItems inside of another uniqueItems: at most one item is written",
                                  flat.front().pointer));
    most = std::min<uint64_t>(most, 1);
    items.unique = false;
  }
  items.max = most >= kUnbounded ? kUnbounded : static_cast<uint32_t>(std::min<uint64_t>(most, kMaxRepetition));
  if (items.min > items.max) return builder_.nothing();
  if (items.unique) {
    for (uint32_t i = 0; i < items.min && i <= items.listed; ++i) need(items, {}, i < items.listed ? i + 1 : items.min);
    for (const Items::Contained& each : items.contained) need(items, {each.kind}, each.min);
  }
  const ExpressionId content = items.contained.empty() ? plain_items(items) : counted_items(items);
  return builder_.sequence({builder_.literal("["), content});
}

// Later on it is looked whether there are that many different ones.
void SchemaCompiler::need(const Items& items, const Conjunction& more, uint64_t count) {
  if (count < 2) return;
  Conjunction schemas = document_.item_schemas(items.flat, items.listed);
  if (more.empty() && count <= items.listed) schemas = document_.item_schemas(items.flat, count - 1);
  schemas.insert(schemas.end(), more.begin(), more.end());
  const RuleId rule = new_rule(items.flat);
  builder_.define(rule, schema(schemas, true));
  needed_.push_back({rule, count, items.flat.front().pointer + "/uniqueItems"});
}

ExpressionId SchemaCompiler::item(const Items& items, size_t index, const Conjunction& more) {
  Conjunction schemas = document_.item_schemas(items.flat, index);
  schemas.insert(schemas.end(), more.begin(), more.end());
  return builder_.scope(items.unique ? Scope::kUniqueItem : Scope::kValue,
                        schema(schemas, items.canonical || items.unique));
}

ExpressionId SchemaCompiler::plain_items(const Items& items) {
  ExpressionId tail = rest_of_items(items);
  for (size_t i = items.listed; i > 0; --i) {
    const size_t index = i - 1;
    std::vector<ExpressionId> choices;
    if (index >= items.min) choices.push_back(builder_.literal("]"));
    if (index < items.max) choices.push_back(builder_.sequence({separator(index), item(items, index, {}), tail}));
    const RuleId rule = new_rule(items.flat);
    builder_.define(rule, builder_.choice(choices));
    tail = builder_.call(rule);
  }
  return tail;
}

// The items behind the first `listed`, which are written, and the bracket.
ExpressionId SchemaCompiler::rest_of_items(const Items& items) {
  const auto before = static_cast<uint32_t>(items.listed);
  const ExpressionId close = builder_.literal("]");
  if (items.max <= before) return items.min <= before ? close : builder_.nothing();
  const ExpressionId one = item(items, items.listed, {});
  const ExpressionId next = builder_.sequence({parts_.comma(), one});
  const uint32_t needed = items.min > before ? items.min - before : 0;
  const uint32_t possible = items.max == kUnbounded ? kUnbounded : items.max - before;
  if (before > 0) return builder_.sequence({builder_.repeat(next, needed, possible), close});
  const ExpressionId more =
      builder_.repeat(next, needed > 0 ? needed - 1 : 0, possible == kUnbounded ? kUnbounded : possible - 1);
  const ExpressionId some = builder_.sequence({one, more, close});
  return needed > 0 ? some : builder_.choice({close, some});
}

// A rule for each number of items and of items of each kind, as far as they matter.
ExpressionId SchemaCompiler::counted_items(const Items& items) {
  const std::string& pointer = items.contained.front().kind.pointer;
  if (items.contained.size() > kMaxContains) fail_at(pointer, fmt::format("more than {} contains", kMaxContains));
  using Place = std::pair<uint32_t, std::vector<uint32_t>>;
  std::map<Place, RuleId> rules;
  std::vector<Place> pending;
  const Place first = {0, std::vector<uint32_t>(items.contained.size())};
  pending.push_back(first);
  rules[first] = new_rule(items.flat);
  while (!pending.empty()) {
    const Place place = pending.back();
    pending.pop_back();
    if (rules.size() > kMaxCountedRules)
      fail_at(pointer, "the counts of contains, minItems and maxItems are too large");
    const ExpressionId body = counted_from(items, place.first, place.second, pending, rules);
    builder_.define(rules[place], body);
  }
  return builder_.call(rules[first]);
}

ExpressionId SchemaCompiler::counted_from(const Items& items, uint32_t index, const std::vector<uint32_t>& counts,
                                          std::vector<std::pair<uint32_t, std::vector<uint32_t>>>& pending,
                                          std::map<std::pair<uint32_t, std::vector<uint32_t>>, RuleId>& rules) {
  const size_t kinds = items.contained.size();
  std::vector<ExpressionId> choices;
  bool may_end = index >= items.min;
  for (size_t i = 0; i < kinds; ++i) may_end = may_end && counts[i] >= items.contained[i].min;
  if (may_end) choices.push_back(builder_.literal("]"));
  if (items.max != kUnbounded && index >= items.max) return builder_.choice(choices);
  const uint32_t last = std::max(static_cast<uint32_t>(items.listed) + 1,
                                 items.max == kUnbounded ? items.min : std::max(items.min, items.max));
  for (size_t set = 0; set < size_t{1} << kinds; ++set) {
    Conjunction more;
    std::vector<uint32_t> next = counts;
    bool makes_sense = true;
    for (size_t i = 0; i < kinds; ++i) {
      const Items::Contained& each = items.contained[i];
      const bool is_in = (set >> i & 1) != 0, has_max = each.max != kUnbounded;
      if (is_in) {
        // Beyond what is needed nobody counts, unless there is a most.
        makes_sense = makes_sense && counts[i] < (has_max ? each.max : each.min);
        more.push_back(each.kind);
        ++next[i];
      } else if (has_max) {
        more.push_back(document_.negated(each.kind));
      }
    }
    if (!makes_sense) continue;
    const std::pair<uint32_t, std::vector<uint32_t>> place = {std::min(index + 1, last), next};
    const auto [found, is_new] = rules.try_emplace(place, 0);
    if (is_new) {
      found->second = new_rule(items.flat);
      pending.push_back(place);
    }
    choices.push_back(builder_.sequence({separator(index), item(items, index, more), builder_.call(found->second)}));
  }
  return builder_.choice(choices);
}

}  // namespace carat::text::grammar
