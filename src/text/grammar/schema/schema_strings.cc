// Strings and names under a schema.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/limits.h"
#include "text/grammar/schema/pattern.h"
#include "text/grammar/schema/schema_compiler.h"

namespace carat::text::grammar {

namespace {

constexpr int kMaxNameDepth = 8;

std::vector<std::string> excluded_strings(const SchemaFacts& facts) {
  std::vector<std::string> strings;
  for (const Json* value : facts.excluded) {
    if (value->is_string()) strings.push_back(value->get<std::string>());
  }
  return strings;
}

}  // namespace

// Each pattern once, with its pointer; formats as patterns.
std::vector<std::pair<std::string, std::string>> SchemaCompiler::all_patterns(const SchemaFacts& facts) {
  std::vector<std::pair<std::string, std::string>> patterns;
  const auto add = [&](std::string pattern, const std::string& pointer) {
    const auto is_it = [&](const auto& known) { return known.first == pattern; };
    if (std::none_of(patterns.begin(), patterns.end(), is_it)) patterns.emplace_back(std::move(pattern), pointer);
  };
  for (const SchemaPart& pattern : facts.patterns) add(*pattern.schema, pattern.pointer);
  for (const SchemaPart& format : facts.formats) {
    const auto& name = format.schema->get_ref<const std::string&>();
    if (auto pattern = format_pattern(name)) {
      add(std::move(*pattern), format.pointer);
    } else {
      builder_.add_note(fmt::format("{}: the format {} is not enforced", format.pointer, format.schema->dump()));
    }
  }
  return patterns;
}

std::optional<TextSet> SchemaCompiler::string_set(const SchemaFacts& facts) {
  std::optional<TextSet> set;
  std::string place = "JSON schema";
  const auto narrow = [&](const TextSet& other) { set = set ? set->and_with(other, place) : other; };
  for (const auto& [pattern, pointer] : all_patterns(facts)) {
    place = fmt::format("JSON schema, {}", pointer);
    narrow(document_.text_set(pattern, pointer));
  }
  for (const SchemaPart& pattern : facts.not_patterns) {
    place = fmt::format("JSON schema, {}", pattern.pointer);
    set = set.value_or(TextSet::everything()).and_not(document_.text_set(*pattern.schema, pattern.pointer), place);
  }
  const auto excluded = excluded_strings(facts);
  if (!excluded.empty()) set = set.value_or(TextSet::everything()).and_not(TextSet::of_words(excluded), place);
  if (facts.min_length == 0 && !facts.max_length) return set;
  const auto bounded = [&](uint64_t count) { return static_cast<uint32_t>(std::min<uint64_t>(count, kMaxTextStates)); };
  // A length far beyond what is followed is no bound for a name or a pattern.
  const uint32_t max =
      !facts.max_length || *facts.max_length >= kMaxTextStates ? kUnbounded : bounded(*facts.max_length);
  if (facts.max_length && max == kUnbounded) {
    narrow(TextSet::of_length(bounded(facts.min_length), kMaxTextStates - 1, place));
  } else {
    narrow(TextSet::of_length(bounded(facts.min_length), max, place));
  }
  return set;
}

ExpressionId SchemaCompiler::string(const Conjunction& flat, const SchemaFacts& facts, bool canonical) {
  const uint32_t min = checked_count(facts.min_length, "minLength", flat);
  uint32_t max = kUnbounded;
  if (facts.max_length) max = static_cast<uint32_t>(std::min<uint64_t>(*facts.max_length, kMaxRepetition));
  if (min > max) return builder_.nothing();
  const auto patterns = all_patterns(facts);
  const bool is_plain = facts.not_patterns.empty() && excluded_strings(facts).empty();
  if (patterns.empty() && is_plain) return parts(canonical).string_of_length(min, max);
  if (patterns.size() == 1 && is_plain) {
    return parts(canonical).quoted(characters_matching(builder_, parts(canonical), patterns[0].first, min, max,
                                                       fmt::format("JSON schema, {}", patterns[0].second)));
  }
  const auto set = string_set(facts);
  return parts(canonical).quoted(
      expression_of(builder_, parts(canonical), *set, fmt::format("JSON schema, {}", flat.front().pointer)));
}

std::optional<TextSet> SchemaCompiler::names_under(const Conjunction& schemas, int depth) {
  if (schemas.empty()) return std::nullopt;
  const auto flat = document_.flatten(schemas);
  if (!flat) return TextSet();
  if (flat->empty()) return std::nullopt;
  if (depth > kMaxNameDepth) fail_at(flat->front().pointer, "the names of members are described too deeply");
  const SchemaFacts facts = facts_of(*flat);
  if ((facts.types & kStringType) == 0) return TextSet();
  if (facts.enumerated) {
    std::vector<std::string> words;
    for (const Json& value : facts.values) {
      const auto fits = [&](const SchemaPart& part) {
        return part.alternatives_done || is_valid(document_, value, part, true, nullptr, facts.list);
      };
      if (value.is_string() && std::all_of(flat->begin(), flat->end(), fits)) words.push_back(value);
    }
    return TextSet::of_words(words);
  }
  for (size_t i = 0; i < flat->size(); ++i) {
    if (!document_.is_choice((*flat)[i]) || (*flat)[i].alternatives_done) continue;
    Conjunction rest = *flat;
    rest[i].alternatives_done = true;
    TextSet any;
    for (size_t j = 0; j < (*rest[i].schema)["anyOf"].size(); ++j) {
      Conjunction combined = rest;
      combined.push_back(document_.alternative(rest[i], j));
      const auto one = names_under(combined, depth + 1);
      if (!one) return std::nullopt;
      any = any.or_with(*one, fmt::format("JSON schema, {}", rest[i].pointer));
    }
    return any;
  }
  return string_set(facts);
}

}  // namespace carat::text::grammar
