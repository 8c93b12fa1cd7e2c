#include "text/grammar/schema/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/automaton.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_keywords.h"
#include "text/grammar/schema/schema_numbers.h"
#include "text/grammar/state_table.h"

namespace carat::text::grammar {

namespace {

bool bounds_cross(const SchemaFacts& facts) {
  for (const NumberBound& low : facts.minima) {
    for (const NumberBound& high : facts.maxima) {
      if (*high.value < *low.value || (*high.value == *low.value && (low.excluded || high.excluded))) return true;
    }
  }
  return false;
}

// How many different texts of `rule` there are, as far as `enough`; nullopt where that is too much work to find out.
std::optional<uint64_t> different_texts(const std::shared_ptr<const Automaton>& automaton, RuleId rule,
                                        uint64_t enough) {
  constexpr size_t kMaxSteps = 100'000;
  StateTable table(automaton, 1);
  std::vector<StateId> states = {table.start_of(rule)}, next;
  uint64_t found = 0;
  size_t steps = 0;
  // By length. What has been read so far is different for each state, and each can be completed.
  while (!states.empty()) {
    if (found + states.size() >= enough) return enough;
    next.clear();
    for (const StateId state : states) {
      found += table.at_bottom(state) ? 1 : 0;
      for (int byte = 0; byte < 256; ++byte) {
        if (byte == ' ') continue;  // may be space between values
        if (++steps > kMaxSteps) return std::nullopt;
        table.begin_work();
        const StateId reached = table.step(state, static_cast<uint8_t>(byte));
        if (reached != StateTable::kDead) next.push_back(reached);
      }
    }
    std::swap(states, next);
  }
  return found;
}

}  // namespace

SchemaCompiler::SchemaCompiler(std::string_view json, Notation notation, JsonStyle style)
    : document_(json),
      style_(style),
      parts_(builder_, notation, false, style == JsonStyle::kSchema),
      canonical_parts_(builder_, notation, true) {
  builder_.set_string_quote(string_quote(notation));
}

Grammar SchemaCompiler::run(const Conjunction& more) {
  const RuleId root = builder_.declare("root", "JSON schema, #");
  Conjunction all = {document_.root()};
  all.insert(all.end(), more.begin(), more.end());
  const ExpressionId whole = schema(all, false);
  // Rules wait here instead of calling each other, so that no chain of references can exhaust the stack.
  for (; !pending_.empty(); pending_.pop_front()) {
    const Pending pending = pending_.front();
    builder_.define(pending.rule, body(pending.flat, pending.canonical));
  }
  builder_.define(root, whole);
  for (const std::string& note : document_.notes()) builder_.add_note(note);
  Grammar grammar = builder_.finish(root);
  check_needed(grammar);
  return grammar;
}

// Whoever has to write so many different items must find that many.
void SchemaCompiler::check_needed(const Grammar& grammar) const {
  if (needed_.empty()) return;
  const auto automaton = std::make_shared<const Automaton>(grammar);
  for (const Needed& each : needed_) {
    const auto found = different_texts(automaton, each.item, each.count);
    if (!found)
      fail_at(each.pointer, fmt::format("it cannot be told whether there are {} different items", each.count));
    if (*found < each.count) {
      fail_at(each.pointer,
              fmt::format("no text fits: {} different items are needed, and there are {}", each.count, *found));
    }
  }
}

RuleId SchemaCompiler::new_rule(const Conjunction& flat) {
  return builder_.declare(flat.front().pointer, fmt::format("JSON schema, {}", flat.front().pointer));
}

ExpressionId SchemaCompiler::schema(const Conjunction& parts_of_it, bool canonical) {
  const auto flat = document_.flatten(parts_of_it);
  if (!flat) return builder_.nothing();
  if (flat->empty()) return parts(canonical).value();
  if (flat->size() > 1 && possible_types(*flat, facts_of(*flat)) == 0) return builder_.nothing();
  Key key;
  for (const SchemaPart& part : *flat) {
    key.emplace_back(part.schema, part.alternatives_done, part.scope, part.owners);
  }
  std::sort(key.begin(), key.end());
  const auto [known, is_new] = rules_.try_emplace({std::move(key), canonical}, 0);
  if (is_new) {
    if (rules_.size() > kMaxSchemaRules) {
      fail_at(flat->front().pointer,
              fmt::format("the schema has more than {} combinations of its parts (anyOf, oneOf, not and if inside of "
                          "each other multiply); make it simpler",
                          kMaxSchemaRules));
    }
    known->second = new_rule(*flat);
    pending_.push_back({known->second, *flat, canonical});
  }
  return builder_.call(known->second);
}

// The types of which some value may be left.
uint8_t SchemaCompiler::possible_types(const Conjunction& flat, const SchemaFacts& facts) {
  uint8_t types = facts.types;
  const auto remove = [&](uint8_t type) { types = static_cast<uint8_t>(types & ~type); };
  if (facts.max_length && facts.min_length > *facts.max_length) remove(kStringType);
  if (facts.max_items && facts.min_items > *facts.max_items) remove(kArrayType);
  if ((facts.integer && facts.fraction) || bounds_cross(facts)) remove(kNumberType);
  if ((types & kObjectType) == 0) return types;
  if (facts.max_properties && facts.min_properties > *facts.max_properties) remove(kObjectType);
  const auto required = required_names(flat);
  if (facts.max_properties && required.size() > *facts.max_properties) remove(kObjectType);
  for (const std::string& name : required) {
    if (facts.absent.contains(name)) remove(kObjectType);
    if (flat.size() == 1 || (types & kObjectType) == 0) continue;
    for (const SchemaPart& part : document_.member_schemas(flat, name)) {
      if (*part.schema == false) remove(kObjectType);
    }
  }
  return types;
}

ExpressionId SchemaCompiler::body(const Conjunction& flat, bool canonical) {
  const SchemaFacts facts = facts_of(flat);
  const uint8_t types = possible_types(flat, facts);
  if (types == 0) return builder_.nothing();
  if (facts.enumerated) return enumerated(flat, facts, canonical);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (document_.is_choice(flat[i]) && !flat[i].alternatives_done) return alternatives(flat, i, canonical);
  }
  std::vector<ExpressionId> kinds;
  if ((types & kObjectType) != 0) kinds.push_back(object(flat, facts, canonical));
  if ((types & kArrayType) != 0) kinds.push_back(array(flat, facts, canonical));
  if ((types & kStringType) != 0) kinds.push_back(string(flat, facts, canonical));
  if ((types & kNumberType) != 0) kinds.push_back(number_expression(builder_, parts(canonical), facts));
  for (const bool value : {true, false}) {
    const bool may_be = (types & kBooleanType) != 0 && !facts.excludes(value);
    if (may_be) kinds.push_back(builder_.literal(value ? "true" : "false"));
  }
  if ((types & kNullType) != 0 && !facts.excludes(nullptr)) kinds.push_back(parts_.null());
  return builder_.choice(kinds);
}

ExpressionId SchemaCompiler::enumerated(const Conjunction& flat, const SchemaFacts& facts, bool canonical) {
  std::vector<ExpressionId> values;
  for (const Json& value : facts.values) {
    const auto fits = [&](const SchemaPart& part) {
      return part.alternatives_done || is_valid(document_, value, part, true, nullptr, facts.list);
    };
    if (std::all_of(flat.begin(), flat.end(), fits)) values.push_back(parts(canonical).constant(value));
  }
  return builder_.choice(values);
}

ExpressionId SchemaCompiler::alternatives(Conjunction flat, size_t choice, bool canonical) {
  flat[choice].alternatives_done = true;
  const SchemaPart part = flat[choice];
  const size_t count = (*part.schema)["anyOf"].size();
  if (count > kMaxAlternatives) fail_at(part.pointer, fmt::format("more than {} alternatives", kMaxAlternatives));
  std::vector<ExpressionId> choices;
  for (size_t i = 0; i < count; ++i) {
    Conjunction combined = flat;
    combined.push_back(document_.alternative(part, i));
    choices.push_back(schema(combined, canonical));
  }
  return builder_.choice(choices);
}

uint32_t SchemaCompiler::checked_count(uint64_t count, std::string_view keyword, const Conjunction& flat) const {
  if (count > kMaxRepetition) fail_at(flat.front().pointer, fmt::format("{} is more than {}", keyword, kMaxRepetition));
  return static_cast<uint32_t>(count);
}

JsonStyle parse_json_style(std::string_view name, std::string_view flag) {
  if (name == "free") return JsonStyle::kFree;
  if (name == "schema") return JsonStyle::kSchema;
  fail(ErrorCode::kBadArgument,
       "{} {}: known are free (members in any order) and schema (those it names, in its order)", flag, name);
}

Grammar grammar_from_json_schema(std::string_view json, JsonStyle style) {
  return SchemaCompiler(json, Notation::kJson, style).run();
}

Grammar grammar_of_arguments(std::string_view json_schema) {
  static const Json object = {{"type", "object"}};
  return SchemaCompiler(json_schema, Notation::kToolCall, JsonStyle::kSchema).run({{&object, "#"}});
}

Grammar any_json_grammar() {
  GrammarBuilder builder;
  JsonParts parts(builder);
  const RuleId root = builder.declare("root", "JSON");
  builder.define(root, parts.value());
  return builder.finish(root);
}

std::map<std::string, size_t> json_schema_keywords(std::string_view schema) {
  std::map<std::string, size_t> counts;
  const Json document = Json::parse(schema.begin(), schema.end());
  SchemaResources resources;
  resources.read(document);
  resources.for_each_schema([&](const Json& each) {
    for (const auto& [name, value] : each.items()) {
      if (is_assertion(name)) ++counts[name];
    }
  });
  return counts;
}

std::string json_schema_violation(std::string_view schema, std::string_view value) {
  SchemaDocument document(schema);
  Json parsed;
  try {
    parsed = Json::parse(value.begin(), value.end());
  } catch (const Json::exception& error) {
    fail(ErrorCode::kBadArgument, "the instance is no valid JSON: {}", error.what());
  }
  // Whatever the schema's other places say, they are looked at, so that errors do not depend on the value.
  document.flatten({document.root()});
  std::string problem;
  if (is_valid(document, parsed, document.root(), true, &problem)) return {};
  return problem.empty() ? "the value is not valid" : problem;
}

}  // namespace carat::text::grammar
