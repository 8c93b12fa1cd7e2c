// Objects under a schema.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text/grammar/limits.h"
#include "text/grammar/schema/pattern.h"
#include "text/grammar/schema/schema_compiler.h"

namespace carat::text::grammar {

namespace {

constexpr size_t kMaxNameClasses = 64;
constexpr size_t kMaxListedNames = 64;  // of a finite set that becomes named members
constexpr size_t kMaxSomes = 64;        // ways in which some members can be what they have to

void add_new(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

// Names that no schema lists, and which match exactly these patterns.
struct SchemaCompiler::FreeNames {
  std::optional<TextSet> set;  // nullopt: all but the listed ones
  std::vector<std::string> matched;
};

struct SchemaCompiler::Members {
  struct Named {
    std::string name;
    bool required;
    Conjunction more;  // what holds for its value besides the schema
  };

  const Conjunction& flat;
  const SchemaFacts& facts;
  bool canonical;
  Conjunction name_schemas;        // propertyNames
  std::vector<std::string> names;  // of all members that are listed, and of those that must not be
  std::vector<Named> named = {};
  std::vector<FreeNames> free = {};
  std::vector<std::pair<size_t, Conjunction>> needed = {};  // members with a free name that must come
  bool distinct = false;                                    // free names must be different from each other
  bool is_open = true;
  uint32_t min = 0, max = kUnbounded;

  // What is written, for ordered_members().
  std::vector<std::pair<ExpressionId, bool>> texts = {};
  ExpressionId other = 0;
};

ExpressionId SchemaCompiler::object(const Conjunction& flat, const SchemaFacts& facts, bool canonical) {
  Members members{flat, facts, canonical, {}, {}};
  bool declares = false;
  for (const SchemaPart& part : flat) {
    if (part.schema->contains("propertyNames")) members.name_schemas.push_back(document_.child(part, "propertyNames"));
    const auto properties = part.schema->find("properties");
    if (properties == part.schema->end()) continue;
    for (const auto& [name, value] : properties->items()) add_new(members.names, name);
    declares = declares || !properties->empty();
  }
  const auto required = required_names(flat);
  for (const std::string& name : required) add_new(members.names, name);
  for (const SchemaPart& part : flat) {
    if (!part.schema->contains("$carat:some") || !(*part.schema)["$carat:some"].contains("without")) continue;
    for (const Json& name : (*part.schema)["$carat:some"]["without"]) add_new(members.names, name);
  }
  sort_keys(parts_.notation(), members.names);
  if (canonical) std::sort(members.names.begin(), members.names.end());
  if (members.names.size() > kMaxProperties) {
    fail_at(flat.front().pointer, fmt::format("more than {} properties", kMaxProperties));
  }
  members.is_open = !is_closed() || (!declares && members.names.empty());
  members.min = checked_count(facts.min_properties, "minProperties", flat);
  if (facts.max_properties && *facts.max_properties < kMaxRepetition) {
    members.max = static_cast<uint32_t>(*facts.max_properties);
  }
  add_named(members, required);
  for (const std::string& name : facts.absent) add_new(members.names, name);
  add_free(members);
  std::vector<ExpressionId> ways;
  for (const Members& way : with_somes(members)) ways.push_back(written_members(way));
  return builder_.sequence({builder_.literal("{"), builder_.choice(ways)});
}

void SchemaCompiler::add_named(Members& members, const std::vector<std::string>& required) {
  const std::unordered_set<std::string> needed(required.begin(), required.end());
  for (const std::string& name : members.names) {
    const auto may_be = [&](const SchemaPart& part) { return is_valid(document_, name, part); };
    const bool is_allowed = !members.facts.absent.contains(name) &&
                            std::all_of(members.name_schemas.begin(), members.name_schemas.end(), may_be);
    if (is_allowed || needed.contains(name)) {
      Conjunction more;
      if (!is_allowed) more.push_back(document_.never());
      members.named.push_back({name, needed.contains(name), more});
    }
  }
}

// What other names there are, apart by the patterns that they match.
std::vector<SchemaCompiler::FreeNames> SchemaCompiler::free_names(const Members& members) {
  std::vector<std::string> patterns;
  bool has_rules = !members.name_schemas.empty();
  for (const SchemaPart& part : members.flat) {
    if (part.schema->contains("patternProperties")) {
      for (const auto& [pattern, schema] : (*part.schema)["patternProperties"].items()) add_new(patterns, pattern);
    }
    const auto some = part.schema->find("$carat:some");
    if (some == part.schema->end()) continue;
    has_rules = has_rules || some->contains("name");
    if (some->contains("pattern")) add_new(patterns, (*some)["pattern"]);
    for (const Json& pattern : some->value("withoutPatterns", Json::array())) add_new(patterns, pattern);
  }
  if (patterns.empty() && !has_rules) return {{std::nullopt, {}}};
  const std::string& pointer = members.flat.front().pointer;
  const std::string place = fmt::format("JSON schema, {}", pointer);
  TextSet all = parts_.notation() == Notation::kJson ? TextSet::everything()
                                                     : TextSet::some_of(key_characters(parts_.notation()));
  if (const auto allowed = names_under(members.name_schemas)) all = all.and_with(*allowed, place);
  all = all.and_not(TextSet::of_words(members.names), place);
  std::vector<FreeNames> classes = {{std::move(all), {}}};
  for (const std::string& pattern : patterns) {
    const TextSet& matching = document_.text_set(pattern, pointer + "/patternProperties");
    std::vector<FreeNames> next;
    for (const FreeNames& each : classes) {
      FreeNames with = {each.set->and_with(matching, place), each.matched};
      with.matched.push_back(pattern);
      next.push_back(std::move(with));
      next.push_back({each.set->and_not(matching, place), each.matched});
    }
    std::erase_if(next, [](const FreeNames& each) { return each.set->empty(); });
    classes = std::move(next);
    if (classes.size() > kMaxNameClasses) fail_at(pointer, "the patterns of names overlap in too many ways");
  }
  std::erase_if(classes, [](const FreeNames& each) { return each.set->empty(); });
  return classes;
}

void SchemaCompiler::add_free(Members& members) {
  for (FreeNames& each : free_names(members)) {
    const Conjunction schemas = document_.free_member_schemas(members.flat, each.matched);
    if (!document_.flatten(schemas)) continue;  // none of them may be
    // A few names are members like others.
    const auto words = each.set ? each.set->words(kMaxListedNames) : std::nullopt;
    if (words) {
      for (const std::string& name : *words) {
        members.names.push_back(name);
        members.named.push_back({name, false, {}});
      }
    } else if (members.is_open || !schemas.empty()) {
      members.free.push_back(std::move(each));
    }
  }
  if (members.canonical) {
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(members.named.begin(), members.named.end(), by_name);
    if (!members.named.empty()) members.free.clear();  // their place among the others is not fixed
  }
  size_t required = 0;
  for (const auto& named : members.named) required += named.required ? 1 : 0;
  members.distinct = members.min > 1 && members.min > required && !members.free.empty();
}

ExpressionId SchemaCompiler::free_member(const Members& members, const FreeNames& names, const Conjunction& more) {
  Conjunction schemas = document_.free_member_schemas(members.flat, names.matched);
  schemas.insert(schemas.end(), more.begin(), more.end());
  JsonParts& pieces = parts(members.canonical);
  ExpressionId key = builder_.nothing();
  if (names.set) {
    key = expression_of(builder_, pieces, *names.set, fmt::format("JSON schema, {}", members.flat.front().pointer));
    if (parts_.notation() == Notation::kJson) key = pieces.quoted(key);
  } else {
    key = pieces.key_other_than(members.names);
  }
  key = builder_.sequence({key, pieces.colon()});
  if (members.distinct) key = builder_.scope(Scope::kFreeName, key);
  return builder_.sequence({key, builder_.scope(Scope::kValue, schema(schemas, members.canonical))});
}

// Each way in which members can be what "$carat:some" asks for.
std::vector<SchemaCompiler::Members> SchemaCompiler::with_somes(const Members& members) {
  std::vector<Members> ways = {members};
  for (const SchemaPart& part : members.flat) {
    if (!part.schema->contains("$carat:some")) continue;
    const Json& some = (*part.schema)["$carat:some"];
    Conjunction value;
    if (some.contains("value")) value.push_back(document_.child(part, "$carat:some", "value"));
    std::vector<Members> next;
    for (const Members& way : ways) {
      for (size_t i = 0; i < way.named.size() && next.size() < kMaxSomes; ++i) {
        if (!document_.some_has_name(part, way.named[i].name)) continue;
        next.push_back(way);
        next.back().named[i].required = true;
        auto& more = next.back().named[i].more;
        more.insert(more.end(), value.begin(), value.end());
      }
      for (size_t i = 0; i < way.free.size() && next.size() < kMaxSomes && !way.canonical; ++i) {
        const auto has = [&](const Json& pattern) {
          const auto& matched = way.free[i].matched;
          return std::find(matched.begin(), matched.end(), pattern.get<std::string>()) != matched.end();
        };
        const Json without = some.value("withoutPatterns", Json::array());
        if (some.contains("pattern") && !has(some["pattern"])) continue;
        if (std::any_of(without.begin(), without.end(), has)) continue;
        Members with = way;
        FreeNames names = way.free[i];
        if (some.contains("name")) {
          const auto allowed = names_under({document_.child(part, "$carat:some", "name")});
          if (allowed) names.set = names.set->and_with(*allowed, "JSON schema, " + part.pointer);
          if (names.set->empty()) continue;
        }
        with.distinct = true;
        with.free.push_back(std::move(names));
        with.needed.emplace_back(with.free.size() - 1, value);
        next.push_back(std::move(with));
      }
    }
    ways = std::move(next);
  }
  return ways;
}

ExpressionId SchemaCompiler::written_members(const Members& given) {
  Members members = given;
  const std::string& pointer = members.flat.front().pointer;
  std::vector<bool> is_needed(members.free.size());
  for (const auto& [index, more] : members.needed) is_needed[index] = true;
  const bool is_call = parts_.notation() != Notation::kJson;
  if (is_call) members.distinct = false;  // who reads a call is not told of names that come twice
  for (const FreeNames& each : members.free) {
    if (members.distinct && each.set && each.set->words(members.min + members.needed.size() + 1)) {
      fail_at(pointer, "there are too few names for minProperties; list them in properties");
    }
  }
  JsonParts& pieces = parts(members.canonical);
  for (const auto& named : members.named) {
    Conjunction schemas = document_.member_schemas(members.flat, named.name);
    schemas.insert(schemas.end(), named.more.begin(), named.more.end());
    const ExpressionId value = builder_.scope(Scope::kValue, schema(schemas, members.canonical));
    members.texts.emplace_back(builder_.sequence({pieces.key(named.name), pieces.colon(), value}), named.required);
  }
  for (const auto& [index, more] : members.needed) {
    members.texts.emplace_back(free_member(members, members.free[index], more), true);
  }
  std::vector<ExpressionId> others;
  for (size_t i = 0; i < members.free.size(); ++i) {
    if (is_needed[i] || (is_call && !members.needed.empty())) continue;
    others.push_back(free_member(members, members.free[i], {}));
  }
  const bool is_ordered = is_closed() || members.canonical || members.texts.size() > kMaxFreeOrder;
  if (is_ordered && !is_closed() && !members.canonical) {
    builder_.add_note(fmt::format("{}: more than {} members come in the order of the schema", pointer, kMaxFreeOrder));
  }
  members.other = builder_.choice(others);
  const size_t sure = members.texts.size() + (others.empty() ? 0 : 1);
  if (members.min > sure && !members.distinct && !builder_.is_nothing(members.other)) {
    fail_at(pointer, "minProperties is more than can be assured: a model may write a name twice; name the properties");
  }
  if (is_ordered) return ordered_members(members);
  std::vector<GrammarBuilder::Member> all;
  for (const auto& [text, required] : members.texts) all.push_back({text, required, true});
  for (const ExpressionId other : others) all.push_back({other, false, false});
  return builder_.sequence(
      {builder_.permutation(all, parts_.comma(), members.min, members.max), builder_.literal("}")});
}

// Rules for "the first i members are dealt with, and n of them are written", from the last one backwards. n stops
// counting where it makes no difference any more.
ExpressionId SchemaCompiler::ordered_members(const Members& members) {
  const size_t count = members.texts.size();
  uint64_t counted = std::max<uint64_t>(1, std::min<uint64_t>(members.min, count + 1));
  if (members.max <= count + 1) counted = std::max<uint64_t>(counted, members.max + 1);
  if ((count + 1) * (counted + 1) > kMaxSchemaRules) {
    fail_at(members.flat.front().pointer, "too many properties for minProperties or maxProperties");
  }
  std::vector<RuleId> next(counted + 1), rules(counted + 1);
  for (size_t i = count + 1; i > 0; --i) {
    const size_t index = i - 1;
    for (uint64_t written = 0; written <= counted; ++written) {
      rules[written] = new_rule(members.flat);
      builder_.define(rules[written], index == count ? end_of_object(members, written)
                                                     : ordered_member(members, index, written, counted, next));
    }
    std::swap(next, rules);
  }
  return builder_.call(next[0]);
}

ExpressionId SchemaCompiler::ordered_member(const Members& members, size_t index, uint64_t written, uint64_t counted,
                                            const std::vector<RuleId>& next) {
  const auto& [text, required] = members.texts[index];
  std::vector<ExpressionId> choices;
  if (written < members.max) {
    choices.push_back(
        builder_.sequence({separator(written), text, builder_.call(next[std::min(written + 1, counted)])}));
  }
  if (!required) choices.push_back(builder_.call(next[written]));
  return builder_.choice(choices);
}

ExpressionId SchemaCompiler::end_of_object(const Members& members, uint64_t written) {
  const ExpressionId close = builder_.literal("}");
  if (written > members.max) return builder_.nothing();
  const uint64_t missing = members.min > written ? members.min - written : 0;
  const ExpressionId none = missing > 0 ? builder_.nothing() : close;
  if (builder_.is_nothing(members.other) || written >= members.max) return none;
  if (missing > 1 && !members.distinct) return builder_.nothing();
  uint64_t left = members.max == kUnbounded ? kUnbounded : members.max - written;
  if (members.canonical) left = 1;
  if (left < missing) return builder_.nothing();
  const ExpressionId more = builder_.sequence({parts_.comma(), members.other});
  const auto further = left == kUnbounded ? kUnbounded : static_cast<uint32_t>(left - 1);
  const auto least = static_cast<uint32_t>(missing > 0 ? missing - 1 : 0);
  return builder_.choice(
      {none, builder_.sequence({separator(written), members.other, builder_.repeat(more, least, further), close})});
}

}  // namespace carat::text::grammar
