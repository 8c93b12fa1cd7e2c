#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "text/letter_case.h"

namespace carat::text::jinja {

namespace {

bool is_computable(const Value& value) { return value.is_integer() || value.is_float() || value.is_bool(); }
bool is_whole(const Value& value) { return value.is_integer() || value.is_bool(); }
int64_t whole(const Value& value) { return value.is_bool() ? int64_t{value.as_bool()} : value.as_integer(); }
double real(const Value& value) { return value.is_float() ? value.as_float() : static_cast<double>(whole(value)); }

int64_t integer_power(int64_t base, int64_t exponent, const Site& site) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) site.fail("a power is too large");
    if (result == 0 || result == 1) return exponent % 2 == 0 || base != -1 ? result : base;
    site.spend(1);
  }
  return result;
}

Value whole_arithmetic(std::string_view op, int64_t a, int64_t b, const Site& site) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    result = integer_power(a, b, site);
  } else {  // // and %, which round down
    if (b == 0) site.fail("division by zero");
    overflow = a == INT64_MIN && b == -1;
    if (!overflow) {
      const int64_t remainder = a % b;
      const bool rounds_up = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == "%" ? remainder + (rounds_up ? b : 0) : a / b - (rounds_up ? 1 : 0);
    }
  }
  if (overflow) site.fail("the result of {} is too large", op);
  return Value::integer(result);
}

Value real_arithmetic(std::string_view op, double a, double b, const Site& site) {
  double result = 0;
  if (op == "+") result = a + b;
  if (op == "-") result = a - b;
  if (op == "*") result = a * b;
  if (op == "**") result = std::pow(a, b);
  if (op == "/" || op == "//" || op == "%") {
    if (b == 0.0) site.fail("division by zero");
    result = op == "/" ? a / b : op == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
  }
  if (!std::isfinite(result)) site.fail("the result of {} is no finite number", op);
  return Value::real(result);
}

Value repeated(const Value& text, int64_t times, const Site& site) {
  MarkedText result;
  for (int64_t i = 0; i < times && !text.as_string().empty(); ++i) {
    site.spend_bytes(text.as_string().size());
    result.append(text.as_string());
  }
  return Value::string(std::move(result));
}

bool contains(const Value& container, const Value& wanted, const Site& site) {
  if (container.is_undefined()) return false;
  site.spend(container.weight());
  if (container.is_string()) {
    if (!wanted.is_string()) site.fail("only a string can be in a string, not {}", wanted.kind_name());
    return container.text().find(wanted.text()) != std::string::npos;
  }
  if (container.is_map()) return wanted.is_string() && container.as_map().find(wanted.text()) != nullptr;
  if (!container.is_list()) site.fail("nothing can be in {}", container.kind_name());
  site.spend(wanted.weight() * container.as_list().size());
  return std::any_of(container.as_list().begin(), container.as_list().end(),
                     [&](const Value& v) { return equal(v, wanted); });
}

// The byte positions where characters begin, and the end. A malformed byte is a character.
std::vector<size_t> character_borders(std::string_view text, const Site& site) {
  site.spend(text.size() / 16 + 1);
  std::vector<size_t> borders;
  for (size_t at = 0; at < text.size();) {
    borders.push_back(at);
    at += std::max<size_t>(1, utf8_sequence_length(text.substr(at)));
  }
  borders.push_back(text.size());
  return borders;
}

std::optional<int64_t> slice_bound(const Value& value, const Site& site) {
  if (value.is_undefined() || value.is_none()) return std::nullopt;
  if (!is_whole(value)) site.fail("a slice goes from integer to integer, not to {}", value.kind_name());
  return whole(value);
}

// The positions a slice of `size` elements selects, as Python counts them.
std::vector<size_t> slice_positions(size_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
                                    int64_t step) {
  const auto count = static_cast<int64_t>(size);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? count : count - 1;
  const auto clamp = [&](std::optional<int64_t> at, int64_t absent) {
    if (!at) return absent;
    return std::clamp(*at < 0 ? *at + count : *at, low, high);
  };
  const int64_t first = clamp(start, step > 0 ? low : high);
  const int64_t last = clamp(stop, step > 0 ? high : low);
  std::vector<size_t> positions;
  for (int64_t at = first; step > 0 ? at < last : at > last; at += step) positions.push_back(static_cast<size_t>(at));
  return positions;
}

}  // namespace

Value binary(std::string_view op, const Value& left, const Value& right, const Site& site) {
  if (op == "~") {
    MarkedText text = site.printed(left);
    text.append(site.printed(right));
    return Value::string(std::move(text));
  }
  if (is_computable(left) && is_computable(right)) {
    const bool stays_whole = is_whole(left) && is_whole(right) && op != "/" && !(op == "**" && whole(right) < 0);
    if (stays_whole) return whole_arithmetic(op, whole(left), whole(right), site);
    return real_arithmetic(op, real(left), real(right), site);
  }
  if (op == "+" && left.is_string() && right.is_string()) {
    MarkedText text = left.as_string();
    text.append(right.as_string());
    return site.string(std::move(text));
  }
  if (op == "+" && left.is_list() && right.is_list()) {
    site.spend((left.as_list().size() + right.as_list().size()) * Site::kNewElement);
    std::vector<Value> items = left.as_list();
    items.insert(items.end(), right.as_list().begin(), right.as_list().end());
    return Value::list(std::move(items));
  }
  if (op == "*" && left.is_string() && right.is_integer()) return repeated(left, right.as_integer(), site);
  if (left.is_undefined()) site.fail("{} is undefined", left.undefined_name());
  if (right.is_undefined()) site.fail("{} is undefined", right.undefined_name());
  site.fail("{} {} {} has no meaning", left.kind_name(), op, right.kind_name());
}

int order(const Value& left, const Value& right, bool case_sensitive, const Site& site) {
  site.spend(left.weight() + right.weight());
  if (is_computable(left) && is_computable(right)) {
    if (is_whole(left) && is_whole(right)) return (whole(left) > whole(right)) - (whole(left) < whole(right));
    return (real(left) > real(right)) - (real(left) < real(right));
  }
  if (left.is_string() && right.is_string()) {
    return case_sensitive ? left.text().compare(right.text()) : to_lower(left.text()).compare(to_lower(right.text()));
  }
  site.fail("{} and {} have no order", left.kind_name(), right.kind_name());
}

bool compare(std::string_view op, const Value& left, const Value& right, const Site& site) {
  if (op == "in") return contains(right, left, site);
  if (op == "not in") return !contains(right, left, site);
  if (op == "==" || op == "!=") {
    site.spend(std::min(left.weight(), right.weight()));
    return equal(left, right) == (op == "==");
  }
  const int sign = order(left, right, true, site);
  if (op == "<") return sign < 0;
  if (op == "<=") return sign <= 0;
  return op == ">" ? sign > 0 : sign >= 0;
}

Value negate(const Value& value, const Site& site) {
  if (value.is_float()) return Value::real(-value.as_float());
  if (!is_whole(value)) site.fail("{} has no negative", value.kind_name());
  return whole_arithmetic("-", 0, whole(value), site);
}

Value attribute(const Value& value, std::string_view name, const Site& site) {
  if (value.is_undefined()) site.fail("{} is undefined, so it has no {}", value.undefined_name(), name);
  if (value.is_namespace()) {
    const Value* found = value.as_namespace().find(name);
    return found == nullptr ? Value::undefined(std::string(name)) : *found;
  }
  return value.get(name);
}

Value item(const Value& value, const Value& key, const Site& site) {
  if (key.is_string()) return attribute(value, key.text(), site);
  if (value.is_undefined()) site.fail("{} is undefined, so it has no items", value.undefined_name());
  if (!is_whole(key)) return Value::undefined("the item");
  int64_t at = whole(key);
  if (value.is_list()) {
    const auto& items = value.as_list();
    if (at < 0) at += static_cast<int64_t>(items.size());
    if (at >= 0 && static_cast<size_t>(at) < items.size()) return items[static_cast<size_t>(at)];
  } else if (value.is_string()) {
    const auto borders = character_borders(value.text(), site);
    if (at < 0) at += static_cast<int64_t>(borders.size()) - 1;
    if (at >= 0 && static_cast<size_t>(at) + 1 < borders.size()) {
      return site.string(
          value.as_string().part(borders[static_cast<size_t>(at)], borders[static_cast<size_t>(at) + 1]));
    }
  }
  return Value::undefined(fmt::format("item {}", whole(key)));
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, const Site& site) {
  const int64_t stride = slice_bound(step, site).value_or(1);
  if (stride == 0) site.fail("the step of a slice is zero");
  const auto from = slice_bound(start, site), to = slice_bound(stop, site);
  // No more than one position lies outside, so a huge step cannot overflow.
  const int64_t safe_stride = std::clamp<int64_t>(stride, -(int64_t{1} << 40), int64_t{1} << 40);
  if (value.is_string()) {
    const auto borders = character_borders(value.text(), site);
    MarkedText text;
    for (const size_t at : slice_positions(borders.size() - 1, from, to, safe_stride)) {
      text.append(value.as_string().part(borders[at], borders[at + 1]));
    }
    return site.string(std::move(text));
  }
  if (!value.is_list()) site.fail("{} cannot be sliced", value.kind_name());
  site.spend(value.as_list().size() * Site::kNewElement);
  std::vector<Value> items;
  for (const size_t at : slice_positions(value.as_list().size(), from, to, safe_stride)) {
    items.push_back(value.as_list()[at]);
  }
  return Value::list(std::move(items));
}

std::vector<Value> elements(const Value& value, const Site& site) {
  if (value.is_undefined()) return {};
  std::vector<Value> items;
  if (value.is_list()) {
    items = value.as_list();
  } else if (value.is_map()) {
    for (const auto& [key, entry] : value.as_map().entries()) items.push_back(Value::string(key));
  } else if (value.is_string()) {
    const auto borders = character_borders(value.text(), site);
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      items.push_back(Value::string(value.as_string().part(borders[i], borders[i + 1])));
    }
  } else {
    site.fail("{} has no elements", value.kind_name());
  }
  site.spend(items.size() * Site::kNewElement);
  return items;
}

int64_t length(const Value& value, const Site& site) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kString:
      return static_cast<int64_t>(character_borders(value.text(), site).size()) - 1;
    case ValueKind::kList:
      return static_cast<int64_t>(value.as_list().size());
    case ValueKind::kMap:
      return static_cast<int64_t>(value.as_map().size());
    default:
      site.fail("{} has no length", value.kind_name());
  }
}

}  // namespace carat::text::jinja
