#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/output/marked_text.h"

namespace carat::text {

class Value;

// String keys in the order they were added.
class ValueMap {
 public:
  struct Entry;
  ValueMap();
  ~ValueMap();
  ValueMap(const ValueMap&);
  ValueMap(ValueMap&&) noexcept;
  ValueMap& operator=(const ValueMap&);
  ValueMap& operator=(ValueMap&&) noexcept;

  // Replaces the value of a key that is there; its place stays.
  void set(const MarkedText& key, Value value);
  const Value* find(std::string_view key) const;  // nullptr when there is none
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

// A thing a template can call: a macro or a function of the language.
class Callable {
 public:
  virtual ~Callable() = default;
};

enum class ValueKind {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kBigInteger,  // an integer of a JSON text beyond 64 bits: it can be shown and compared, not computed with
  kString,
  kList,
  kMap,
  kNamespace,  // the one thing a template can change
  kCallable,
};

// A value of a chat template: what JSON knows, with strings that know their origin, and a few things of the language.
// Immutable and cheap to copy, except that copies of a namespace share it.
class Value {
 public:
  // Nesting and total size (elements, and strings by their length) of lists and maps; beyond, an Error. Values can
  // contain one list several times, so without the second a few lines could stand for more elements than memory has.
  static constexpr uint32_t kMaxDepth = 64;
  static constexpr uint64_t kMaxWeight = uint64_t{1} << 24;

  Value() : Value(Undefined{}) {}
  static Value undefined(std::string what);
  static Value none() { return Value(None{}); }
  static Value boolean(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }
  static Value real(double value) { return Value(value); }
  static Value big_integer(std::string digits);
  static Value string(MarkedText text);
  static Value string(std::string_view text, bool from_template) { return string(MarkedText(text, from_template)); }
  static Value list(std::vector<Value> items);
  static Value map(ValueMap entries);
  static Value name_space(ValueMap entries);  // no namespace may be in it: they could contain each other
  static Value callable(std::shared_ptr<const Callable> callable) { return Value(std::move(callable)); }

  ValueKind kind() const { return static_cast<ValueKind>(data_.index()); }
  bool is_undefined() const { return kind() == ValueKind::kUndefined; }
  bool is_none() const { return kind() == ValueKind::kNone; }
  bool is_bool() const { return kind() == ValueKind::kBool; }
  bool is_integer() const { return kind() == ValueKind::kInteger; }
  bool is_float() const { return kind() == ValueKind::kFloat; }
  bool is_number() const { return is_integer() || is_float() || kind() == ValueKind::kBigInteger; }
  bool is_string() const { return kind() == ValueKind::kString; }
  bool is_list() const { return kind() == ValueKind::kList; }
  bool is_map() const { return kind() == ValueKind::kMap; }
  bool is_namespace() const { return kind() == ValueKind::kNamespace; }
  bool is_callable() const { return kind() == ValueKind::kCallable; }

  // Each only for its kind.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_integer() const { return std::get<int64_t>(data_); }
  double as_float() const { return std::get<double>(data_); }
  std::string_view undefined_name() const;
  const std::string& as_digits() const { return *std::get<BigInteger>(data_).digits; }
  const MarkedText& as_string() const { return *std::get<std::shared_ptr<const MarkedText>>(data_); }
  const std::string& text() const { return as_string().text(); }
  const std::vector<Value>& as_list() const { return std::get<std::shared_ptr<const ListData>>(data_)->items; }
  const ValueMap& as_map() const { return std::get<std::shared_ptr<const MapData>>(data_)->entries; }
  ValueMap& as_namespace() const { return *std::get<std::shared_ptr<ValueMap>>(data_); }
  const Callable& as_callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  // The entry of a map, or undefined (also when this is no map).
  Value get(std::string_view key) const;

  bool truthy() const;
  // How many elements it takes to look at all of it; strings count by their length.
  uint64_t weight() const;
  uint32_t depth() const;
  // What an error message calls it: "a string", "a list", ...
  std::string_view kind_name() const;

 private:
  struct Undefined {
    std::shared_ptr<const std::string> what;  // so that an error can name what is missing
  };
  struct None {};
  struct BigInteger {
    std::shared_ptr<const std::string> digits;
  };
  struct ListData {
    std::vector<Value> items;
    uint64_t weight;
    uint32_t depth;
  };
  struct MapData {
    ValueMap entries;
    uint64_t weight;
    uint32_t depth;
  };
  // In the order of ValueKind.
  using Data = std::variant<Undefined, None, bool, int64_t, double, BigInteger, std::shared_ptr<const MarkedText>,
                            std::shared_ptr<const ListData>, std::shared_ptr<const MapData>, std::shared_ptr<ValueMap>,
                            std::shared_ptr<const Callable>>;

  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

struct ValueMap::Entry {
  MarkedText key;
  Value value;
};

// Equality as Python has it: numbers by value whatever their kind, lists and maps by their elements. The caller pays
// for the weight of both.
bool equal(const Value& left, const Value& right);

// What printing a value shows: Python's str() and repr(). Text that neither the template nor a message wrote (brackets,
// digits) counts as content.
MarkedText python_text(const Value& value);
std::string python_repr(const Value& value);
// Python's repr of a float: the shortest digits that give the same number back.
std::string python_float(double value);

}  // namespace carat::text
