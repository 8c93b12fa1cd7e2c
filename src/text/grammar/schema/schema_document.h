#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar/schema/notation.h"
#include "text/grammar/schema/schema_resources.h"
#include "text/grammar/schema/text_set.h"

namespace carat::text::grammar {

// One schema of a document and where it stands.
struct SchemaPart {
  const Json* schema = nullptr;
  std::string pointer;             // "#/properties/name"
  bool alternatives_done = false;  // of a choice: one of its alternatives was taken and is a part of its own
  uint32_t scope = 0;              // the resources entered on the way here, for $dynamicRef
  uint32_t owners = 0;             // the unevaluatedProperties and unevaluatedItems that what stands here counts for
  uint32_t origin = 0;             // the choices that it is an alternative of, or of an alternative's alternatives
};

// Several schemas that hold at the same time.
using Conjunction = std::vector<SchemaPart>;

// An Error about the schema at `pointer`.
[[noreturn]] void fail_at(std::string_view pointer, const std::string& problem);

std::string escaped_name(std::string_view name);  // for a JSON pointer

// A schema document: reads it, checks each keyword where it is met, follows references, and writes what says something
// about several schemas at once (oneOf, not, if, dependencies) as choices between conjunctions of plain keywords.
//
// Besides the keywords of JSON Schema, schemas made here have these:
//   $carat:part N         the part N
//   $carat:not N          what is not valid under the part N
//   $carat:absent NAMES   objects do not have these members
//   $carat:exclude VALUES the value is none of these strings, booleans and null
//   $carat:notPattern P   strings do not match the pattern
//   $carat:fraction true  numbers are not whole
//   $carat:some {...}     an object has a member for which this holds: "pattern": its name matches; "without", "names
//                         Not": it is none of these names and matches none of these patterns; "name", "value": parts
//                         that its name and its value are valid under
class SchemaDocument {
 public:
  // Throws kBadArgument for what is no JSON, too large or nested too deep.
  explicit SchemaDocument(std::string_view json);

  SchemaPart root() const;

  // The part with everything that holds at the same place, each once, in order; `true` leaves nothing, and nullopt
  // means that no value can be valid. Choices are parts of their own (is_choice). Throws for keywords of a wrong shape,
  // for references in a circle, and when all calls together take too long.
  std::optional<Conjunction> flatten(const Conjunction& parts);

  // A choice between the schemas of its anyOf. Only there anyOf has a meaning in a flat conjunction.
  bool is_choice(const SchemaPart& part) const { return choices_.contains(part.schema); }
  // Throws for one that leads back to the choice, and so describes nothing.
  SchemaPart alternative(const SchemaPart& choice, size_t index);

  // Of another value than the part's: a member, an item, a name.
  SchemaPart child(const SchemaPart& part, std::string_view keyword);
  SchemaPart child(const SchemaPart& part, std::string_view keyword, std::string_view name);
  SchemaPart child(const SchemaPart& part, std::string_view keyword, size_t index);
  // The part that "$carat:some" and the like refer to.
  const SchemaPart& referred(const Json& number) const { return parts_[number.get<size_t>()]; }
  SchemaPart negated(const SchemaPart& part);
  static SchemaPart never();  // nothing is valid
  // Bounds what is done for one schema.
  void count_step(std::string_view pointer);
  // "$carat:some": whether a member of this name may be the one.
  bool some_has_name(const SchemaPart& part, const std::string& name);

  // Under a flat conjunction: the schemas of a member or item, also by unevaluatedProperties and unevaluatedItems.
  Conjunction member_schemas(const Conjunction& flat, const std::string& name);
  // Of a member that no properties name, where it matches exactly these of `patterns`.
  Conjunction free_member_schemas(const Conjunction& flat, const std::vector<std::string>& matched);
  Conjunction item_schemas(const Conjunction& flat, size_t index);

  // Of a pattern or of a format's pattern; made once.
  const TextSet& text_set(const std::string& pattern, std::string_view pointer);

  SchemaPart resolve(const SchemaPart& part, std::string_view keyword);
  // A reference is all there is beside it, as before draft 2019-09.
  bool hides_siblings(const Json& schema) const { return resources_.draft() <= 7 && schema.contains("$ref"); }

  // Throws for keywords of a wrong shape; looks at each schema once.
  void check(const SchemaPart& part);
  void note(std::string text);
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  using Path = std::vector<const Json*>;
  bool collect(const SchemaPart& part, Path& path, Conjunction& out);
  bool collect_applicators(const SchemaPart& part, Path& path, Conjunction& out);
  SchemaPart moved(const SchemaPart& part, const Json* schema, std::string pointer);
  bool counts_for(const SchemaPart& part, const SchemaPart& owner) const;
  uint32_t list_with(uint32_t list, const Json* schema);

  // --- made schemas (schema_rewrites.cc)
  using MadeKey = std::tuple<const Json*, uint32_t, std::string>;
  template <typename Make>
  SchemaPart made(const SchemaPart& part, const std::string& keyword, bool is_choice, Make&& make);
  Json positive(const SchemaPart& part) { return {{"$carat:part", refer(part)}}; }
  Json negative(const SchemaPart& part) { return {{"$carat:not", refer(part)}}; }
  size_t refer(const SchemaPart& part);
  SchemaPart evaluated_or(const SchemaPart& otherwise, const Conjunction& contained);
  SchemaPart any_of(const SchemaPart& part);
  SchemaPart one_of(const SchemaPart& part);
  SchemaPart condition(const SchemaPart& part);
  SchemaPart dependency(const SchemaPart& part, std::string_view keyword, const std::string& name);
  Json negation(const SchemaPart& part);
  void negate_values(const SchemaPart& part, std::vector<Json>& out);
  Json different_from(const SchemaPart& part, const std::vector<Json>& values);
  void negate_applicators(const SchemaPart& part, std::vector<Json>& out);
  void negate_object(const SchemaPart& part, std::vector<Json>& out);
  void negate_array(const SchemaPart& part, std::vector<Json>& out);

  Json document_;
  SchemaResources resources_;
  std::unordered_set<const Json*> checked_;  // schemas whose keywords are known to be fine
  size_t steps_ = 0;
  std::deque<Json> made_;
  std::map<MadeKey, const Json*> made_by_key_;
  std::unordered_set<const Json*> choices_;
  std::set<std::pair<const Json*, uint32_t>> comparing_;  // oneOfs whose alternatives are being compared
  std::deque<SchemaPart> parts_;
  std::map<std::pair<const Json*, uint32_t>, size_t> part_numbers_;
  std::vector<std::vector<const Json*>> lists_ = {{}};  // of schemas: owners and origins
  std::map<std::string, TextSet> text_sets_;
  std::vector<std::string> notes_;
};

// Where the schemas of items stand: a list for the first ones and a schema for the rest; older drafts call them
// otherwise.
std::string_view prefix_keyword(const Json& schema);  // "" without one
std::string_view rest_keyword(const Json& schema);    // "" without one

// The kinds of JSON values, as bits.
enum TypeBits : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kNumberType = 4,
  kStringType = 8,
  kArrayType = 16,
  kObjectType = 32,
  kAnyType = 63,
};

uint8_t type_of(const Json& value);

// A limit for a number, exactly as written.
struct NumberBound {
  const Json* value = nullptr;
  bool excluded = false;
  std::string pointer;
};

// What a flat conjunction says about a value, apart from its members and items.
struct SchemaFacts {
  uint8_t types = kAnyType;
  bool integer = false;     // numbers are whole
  bool fraction = false;    // numbers are not whole
  bool enumerated = false;  // by the first enum or const:
  std::span<const Json> values;
  const Json* list = nullptr;  // the enum that these are
  std::vector<NumberBound> minima, maxima;
  std::vector<SchemaPart> factors;  // multipleOf
  uint64_t min_length = 0, min_items = 0, min_properties = 0;
  std::optional<uint64_t> max_length, max_items, max_properties;
  std::vector<SchemaPart> patterns, not_patterns, formats;  // the keyword's value
  std::vector<const Json*> excluded;
  std::unordered_set<std::string> absent;
  bool unique = false;

  bool excludes(const Json& value) const;
};

SchemaFacts facts_of(const Conjunction& flat);

// The regular expression of a format that is enforced; nullopt for others.
std::optional<std::string> format_pattern(std::string_view name);

std::vector<std::string> required_names(const Conjunction& flat);

// Whether `value` is valid under the schema. A format may be enforced or not: with `strict` a value must be valid both
// ways, without it is enough to be valid in one. `problem`, where given, gets the place and keyword that it fails at.
// `listed` is an enum in which the value is known to be.
bool is_valid(SchemaDocument& document, const Json& value, const SchemaPart& schema, bool strict = true,
              std::string* problem = nullptr, const Json* listed = nullptr);

// As JSON Schema compares: numbers by what they are worth, members in any order.
bool same_value(const Json& a, const Json& b);

// Whether it is certain that no value is valid under both.
bool are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth = 0);

}  // namespace carat::text::grammar
