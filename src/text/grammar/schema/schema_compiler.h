#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/schema_document.h"
#include "text/grammar/schema/text_set.h"

namespace carat::text::grammar {

// Makes the grammar of a schema: a rule for each combination of schemas that can hold for one value. Choices become
// alternatives, what is left are plain keywords, and for each type of value they become an expression.
class SchemaCompiler {
 public:
  SchemaCompiler(std::string_view json, Notation notation, JsonStyle style);

  // What is valid under the schema and under `more`.
  Grammar run(const Conjunction& more = {});

 private:
  using Key = std::vector<std::tuple<const Json*, bool, uint32_t, uint32_t>>;
  struct Pending {
    RuleId rule;
    Conjunction flat;
    bool canonical;
  };
  // Items that must differ from each other: there must be so many different ones.
  struct Needed {
    RuleId item;
    uint64_t count;
    std::string pointer;
  };

  // --- schema_compiler.cc
  // A value that is valid under all `parts`. `canonical`: equal values have equal texts (JsonParts).
  ExpressionId schema(const Conjunction& parts, bool canonical);
  ExpressionId body(const Conjunction& flat, bool canonical);
  uint8_t possible_types(const Conjunction& flat, const SchemaFacts& facts);
  ExpressionId enumerated(const Conjunction& flat, const SchemaFacts& facts, bool canonical);
  ExpressionId alternatives(Conjunction flat, size_t choice, bool canonical);
  uint32_t checked_count(uint64_t count, std::string_view keyword, const Conjunction& flat) const;
  void check_needed(const Grammar& grammar) const;
  JsonParts& parts(bool canonical) { return canonical ? canonical_parts_ : parts_; }
  bool is_closed() const { return style_ == JsonStyle::kSchema || parts_.notation() != Notation::kJson; }
  RuleId new_rule(const Conjunction& flat);
  ExpressionId separator(size_t written) { return written == 0 ? builder_.empty() : parts_.comma(); }

  // --- schema_strings.cc
  ExpressionId string(const Conjunction& flat, const SchemaFacts& facts, bool canonical);
  std::optional<TextSet> string_set(const SchemaFacts& facts);
  // The strings that are valid under all of them; nullopt: all strings.
  std::optional<TextSet> names_under(const Conjunction& schemas, int depth = 0);
  std::vector<std::pair<std::string, std::string>> all_patterns(const SchemaFacts& facts);

  // --- schema_arrays.cc
  ExpressionId array(const Conjunction& flat, const SchemaFacts& facts, bool canonical);
  struct Items;
  ExpressionId item(const Items& items, size_t index, const Conjunction& more);
  ExpressionId plain_items(const Items& items);
  ExpressionId rest_of_items(const Items& items);
  ExpressionId counted_items(const Items& items);
  ExpressionId counted_from(const Items& items, uint32_t index, const std::vector<uint32_t>& counts,
                            std::vector<std::pair<uint32_t, std::vector<uint32_t>>>& pending,
                            std::map<std::pair<uint32_t, std::vector<uint32_t>>, RuleId>& rules);
  void need(const Items& items, const Conjunction& more, uint64_t count);

  // --- schema_objects.cc
  ExpressionId object(const Conjunction& flat, const SchemaFacts& facts, bool canonical);
  struct Members;
  struct FreeNames;
  void add_named(Members& members, const std::vector<std::string>& required);
  std::vector<FreeNames> free_names(const Members& members);
  ExpressionId free_member(const Members& members, const FreeNames& names, const Conjunction& more);
  void add_free(Members& members);
  std::vector<Members> with_somes(const Members& members);
  ExpressionId written_members(const Members& members);
  ExpressionId ordered_members(const Members& members);
  ExpressionId ordered_member(const Members& members, size_t index, uint64_t written, uint64_t counted,
                              const std::vector<RuleId>& next);
  ExpressionId end_of_object(const Members& members, uint64_t written);

  SchemaDocument document_;
  GrammarBuilder builder_;
  JsonStyle style_;
  JsonParts parts_, canonical_parts_;
  std::map<std::pair<Key, bool>, RuleId> rules_;
  std::deque<Pending> pending_;
  std::vector<Needed> needed_;
};

}  // namespace carat::text::grammar
