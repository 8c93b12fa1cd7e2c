#include "text/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace carat::text {

namespace {

// Strings of this many bytes weigh as much as one more element.
constexpr size_t kBytesPerWeight = 64;

struct Extent {
  uint64_t weight = 1;
  uint32_t depth = 1;

  void add(const Value& value) {
    if (value.is_namespace()) fail(ErrorCode::kBadFile, "the chat template stores a namespace inside another value");
    weight += value.weight();
    depth = std::max(depth, value.depth() + 1);
  }
  void check() const {
    if (depth > Value::kMaxDepth) fail(ErrorCode::kBadArgument, "lists and maps nest more than {} deep", depth - 1);
    if (weight > Value::kMaxWeight) fail(ErrorCode::kBadArgument, "a list or map has more than {} elements", weight);
  }
};

}  // namespace

ValueMap::ValueMap() = default;
ValueMap::~ValueMap() = default;
ValueMap::ValueMap(const ValueMap&) = default;
ValueMap::ValueMap(ValueMap&&) noexcept = default;
ValueMap& ValueMap::operator=(const ValueMap&) = default;
ValueMap& ValueMap::operator=(ValueMap&&) noexcept = default;

size_t ValueMap::size() const { return entries_.size(); }

void ValueMap::set(const MarkedText& key, Value value) {
  const auto [place, is_new] = places_.emplace(key.text(), entries_.size());
  if (is_new) {
    entries_.push_back({key, std::move(value)});
  } else {
    entries_[place->second].value = std::move(value);
  }
}

const Value* ValueMap::find(std::string_view key) const {
  const auto place = places_.find(std::string(key));
  return place == places_.end() ? nullptr : &entries_[place->second].value;
}

Value Value::undefined(std::string what) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
}

std::string_view Value::undefined_name() const {
  const auto& what = std::get<Undefined>(data_).what;
  return what == nullptr ? std::string_view("a value") : std::string_view(*what);
}

Value Value::big_integer(std::string digits) {
  return Value(BigInteger{std::make_shared<const std::string>(std::move(digits))});
}

Value Value::string(MarkedText text) { return Value(std::make_shared<const MarkedText>(std::move(text))); }

Value Value::list(std::vector<Value> items) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  extent.check();
  return Value(std::make_shared<const ListData>(ListData{std::move(items), extent.weight, extent.depth}));
}

Value Value::map(ValueMap entries) {
  Extent extent;
  for (const auto& [key, value] : entries.entries()) {
    extent.weight += 1 + key.size() / kBytesPerWeight;
    extent.add(value);
  }
  extent.check();
  return Value(std::make_shared<const MapData>(MapData{std::move(entries), extent.weight, extent.depth}));
}

Value Value::name_space(ValueMap entries) {
  Extent extent;
  for (const auto& entry : entries.entries()) extent.add(entry.value);
  return Value(std::make_shared<ValueMap>(std::move(entries)));
}

Value Value::get(std::string_view key) const {
  if (is_map()) {
    if (const Value* found = as_map().find(key)) return *found;
  }
  return undefined(std::string(key));
}

bool Value::truthy() const {
  switch (kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
      return as_bool();
    case ValueKind::kInteger:
      return as_integer() != 0;
    case ValueKind::kFloat:
      return as_float() != 0.0;
    case ValueKind::kString:
      return !as_string().empty();
    case ValueKind::kList:
      return !as_list().empty();
    case ValueKind::kMap:
      return as_map().size() > 0;
    case ValueKind::kBigInteger:
    case ValueKind::kNamespace:
    case ValueKind::kCallable:
      return true;
  }
  return false;
}

uint64_t Value::weight() const {
  switch (kind()) {
    case ValueKind::kString:
      return 1 + as_string().size() / kBytesPerWeight;
    case ValueKind::kList:
      return std::get<std::shared_ptr<const ListData>>(data_)->weight;
    case ValueKind::kMap:
      return std::get<std::shared_ptr<const MapData>>(data_)->weight;
    default:
      return 1;
  }
}

uint32_t Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const ListData>>(data_)->depth;
  if (is_map()) return std::get<std::shared_ptr<const MapData>>(data_)->depth;
  return 0;
}

std::string_view Value::kind_name() const {
  switch (kind()) {
    case ValueKind::kUndefined:
      return "undefined";
    case ValueKind::kNone:
      return "none";
    case ValueKind::kBool:
      return "a boolean";
    case ValueKind::kInteger:
    case ValueKind::kBigInteger:
      return "an integer";
    case ValueKind::kFloat:
      return "a number";
    case ValueKind::kString:
      return "a string";
    case ValueKind::kList:
      return "a list";
    case ValueKind::kMap:
      return "a mapping";
    case ValueKind::kNamespace:
      return "a namespace";
    case ValueKind::kCallable:
      return "a function";
  }
  return "";
}

namespace {

bool equal_lists(const std::vector<Value>& left, const std::vector<Value>& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), equal);
}

bool equal_maps(const ValueMap& left, const ValueMap& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key.text());
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

// True and false are the numbers 1 and 0.
bool is_small_number(const Value& value) { return value.is_bool() || value.is_integer() || value.is_float(); }

bool equal_numbers(const Value& left, const Value& right) {
  const auto integer = [](const Value& v) { return v.is_bool() ? int64_t{v.as_bool()} : v.as_integer(); };
  if (!left.is_float() && !right.is_float()) return integer(left) == integer(right);
  const auto real = [&](const Value& v) { return v.is_float() ? v.as_float() : static_cast<double>(integer(v)); };
  return real(left) == real(right);
}

}  // namespace

bool equal(const Value& left, const Value& right) {
  if (is_small_number(left) && is_small_number(right)) return equal_numbers(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kBigInteger:
      return left.as_digits() == right.as_digits();
    case ValueKind::kString:
      return left.text() == right.text();
    case ValueKind::kList:
      return equal_lists(left.as_list(), right.as_list());
    case ValueKind::kMap:
      return equal_maps(left.as_map(), right.as_map());
    case ValueKind::kNamespace:
      return &left.as_namespace() == &right.as_namespace();
    case ValueKind::kCallable:
      return &left.as_callable() == &right.as_callable();
    default:
      return false;
  }
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[400];
  const double magnitude = std::fabs(value);
  // Python changes to exponents where the decimal point would be more than 16 digits to the right or 4 to the left.
  const bool fixed = magnitude == 0.0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

// Python prefers single quotes and takes double ones where that saves escapes.
std::string quoted(std::string_view text) {
  const bool prefers_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = prefers_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote) {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + quote;
}

}  // namespace

std::string python_repr(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "None";
    case ValueKind::kBool:
      return value.as_bool() ? "True" : "False";
    case ValueKind::kInteger:
      return std::to_string(value.as_integer());
    case ValueKind::kFloat:
      return python_float(value.as_float());
    case ValueKind::kBigInteger:
      return value.as_digits();
    case ValueKind::kString:
      return quoted(value.text());
    case ValueKind::kList: {
      std::string out;
      for (const Value& item : value.as_list()) out += (out.empty() ? "" : ", ") + python_repr(item);
      return "[" + out + "]";
    }
    case ValueKind::kMap: {
      std::string out;
      for (const auto& [key, item] : value.as_map().entries()) {
        out += (out.empty() ? "" : ", ") + quoted(key.text()) + ": " + python_repr(item);
      }
      return "{" + out + "}";
    }
    case ValueKind::kNamespace:
      return "<Namespace>";
    case ValueKind::kCallable:
      return "<function>";
  }
  return "";
}

MarkedText python_text(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_undefined()) return {};
  return MarkedText(python_repr(value), false);
}

}  // namespace carat::text
