#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/grammar/schema/notation.h"

namespace carat::text::grammar {

// One schema of a document and where it stands.
struct SchemaPart {
  const Json* schema = nullptr;
  std::string pointer;             // "#/properties/name"
  bool alternatives_done = false;  // one of its anyOf or oneOf was chosen and is a part of its own

  bool operator==(const SchemaPart& other) const {
    return schema == other.schema && alternatives_done == other.alternatives_done;
  }
};

// Several schemas that hold at the same time.
using Conjunction = std::vector<SchemaPart>;

// An Error about the schema at `pointer`.
[[noreturn]] void fail_at(std::string_view pointer, const std::string& problem);

// A schema document: reads it, checks that each keyword is known where it is met, and follows references.
class SchemaDocument {
 public:
  // Throws kBadArgument for what is no JSON, too large or nested too deep.
  explicit SchemaDocument(std::string_view json);

  SchemaPart root() const { return {&document_, "#", false}; }

  // The part with everything that allOf and $ref bring along, each once, in order; `true` leaves nothing, and nullopt
  // means that no value can be valid. Throws for keywords that cannot be assured, for references in a
  // circle, and when all calls together take too long.
  std::optional<Conjunction> flatten(const Conjunction& parts);

  static SchemaPart child(const SchemaPart& part, std::string_view keyword);
  static SchemaPart child(const SchemaPart& part, std::string_view keyword, std::string_view name);
  static SchemaPart child(const SchemaPart& part, std::string_view keyword, size_t index);

 private:
  bool collect(const SchemaPart& part, std::vector<const Json*>& path, Conjunction& out);
  SchemaPart resolve(const SchemaPart& part) const;

  Json document_;
  std::unordered_set<const Json*> checked_;  // schemas whose keywords are known to be fine
  size_t steps_ = 0;
};

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

// What a conjunction says about a value, apart from its members and items.
struct SchemaFacts {
  uint8_t types = kAnyType;
  bool types_given = false;
  bool integer = false;     // numbers are whole
  uint8_t described = 0;    // the types that keywords are about
  bool enumerated = false;  // by the first enum or const:
  std::span<const Json> values;
  std::vector<NumberBound> minima, maxima;
  std::vector<SchemaPart> factors;  // multipleOf
  uint64_t min_length = 0, min_items = 0, min_properties = 0;
  std::optional<uint64_t> max_length, max_items, max_properties;
  std::vector<SchemaPart> patterns, formats;  // the keyword's value
};

SchemaFacts facts_of(const Conjunction& flat);

// Whether `value` is valid under the schema. Throws for schemas it would have to guess about: patterns and formats.
// `listed` is an enum in which the value is known to be.
bool is_valid(SchemaDocument& document, const Json& value, const SchemaPart& schema, std::span<const Json> listed = {},
              int depth = 0);

// Whether it is certain that no value is valid under both.
bool are_disjoint(SchemaDocument& document, const Conjunction& a, const Conjunction& b, int depth = 0);

// The schema of a member in each part that says something about it.
Conjunction member_schemas(const Conjunction& flat, const std::string& name);

std::vector<std::string> required_names(const Conjunction& flat);

}  // namespace carat::text::grammar
