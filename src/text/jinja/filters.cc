#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/letter_case.h"
#include "text/value_json.h"
#include "text/white_space.h"

namespace carat::text::jinja {

namespace {

using Filter = Value (*)(const Value& input, Arguments& arguments, const Site& site);

Value text_of(const Value& input, const Site& site) { return Value::string(site.printed(input)); }

// A value by a path such as "function.name" or "items.0".
Value at_path(const Value& value, std::string_view path, const Site& site) {
  Value result = value;
  for (const Value& part : split(MarkedText(path, true), ".", -1, site)) {
    int64_t index = 0;
    const std::string& text = part.text();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool is_index = error == std::errc() && end == text.data() + text.size();
    if (result.is_undefined()) return result;
    result = is_index ? item(result, Value::integer(index), site) : attribute(result, text, site);
  }
  return result;
}

// --- strings ---

Value filter_trim(const Value& input, Arguments& arguments, const Site& site) {
  return Value::string(stripped(site.printed(input), Side::kBoth, arguments.text("chars", ""), site));
}
Value filter_upper(const Value& input, Arguments&, const Site& site) {
  return site.string(site.printed(input).mapped(to_upper));
}
Value filter_lower(const Value& input, Arguments&, const Site& site) {
  return site.string(site.printed(input).mapped(to_lower));
}
Value filter_title(const Value& input, Arguments&, const Site& site) {
  return Value::string(title_case(site.printed(input), site));
}
Value filter_capitalize(const Value& input, Arguments&, const Site& site) {
  return Value::string(capitalised(site.printed(input), site));
}
Value filter_string(const Value& input, Arguments&, const Site& site) { return text_of(input, site); }
Value filter_safe(const Value& input, Arguments&, const Site&) { return input; }

Value filter_replace(const Value& input, Arguments& arguments, const Site& site) {
  const Value from = arguments.required("old"), to = arguments.required("new");
  if (!from.is_string() || !to.is_string()) site.fail("replace() takes two strings");
  const int64_t count = arguments.integer("count", -1);
  return Value::string(replaced(site.printed(input), from.text(), to.as_string(), count, site));
}

Value filter_indent(const Value& input, Arguments& arguments, const Site& site) {
  const int64_t width = arguments.integer("width", 4);
  const bool first = arguments.flag("first", false);
  const bool blank = arguments.flag("blank", false);
  return Value::string(indented(site.printed(input), width, first, blank, site));
}

Value filter_tojson(const Value& input, Arguments& arguments, const Site& site) {
  JsonStyle style;
  const Value indent = arguments.take("indent");
  if (indent.is_integer() && indent.as_integer() >= 0 && indent.as_integer() <= 100) {
    style.indent = indent.as_integer();
    style.item_separator = ",";
  } else if (!indent.is_undefined() && !indent.is_none()) {
    site.fail("tojson(indent={}) is not possible", python_repr(indent));
  }
  style.ensure_ascii = arguments.flag("ensure_ascii", false);
  style.sort_keys = arguments.flag("sort_keys", false);
  const Value separators = arguments.take("separators");
  if (separators.is_list() && separators.as_list().size() == 2) {
    style.item_separator = python_text(separators.as_list()[0]).text();
    style.key_separator = python_text(separators.as_list()[1]).text();
  }
  // Escapes make a character six times as long at most; indentation depends on the depth.
  const uint64_t element = 64 * 6 + style.item_separator.size() + style.key_separator.size() +
                           static_cast<uint64_t>(style.indent.value_or(0)) * (input.depth() + 1);
  site.spend(input.weight());
  site.spend_bytes(input.weight() * element);
  return Value::string(to_json(input, style), false);
}

// --- numbers ---

Value filter_int(const Value& input, Arguments& arguments, const Site& site) {
  const Value otherwise = arguments.take("default");
  if (input.is_integer()) return input;
  if (input.is_bool()) return Value::integer(input.as_bool());
  if (input.is_float() && std::fabs(input.as_float()) < 9e18) {
    return Value::integer(static_cast<int64_t>(input.as_float()));
  }
  if (input.is_string()) {
    const std::string_view text = trim(input.text());
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && std::fabs(number) < 9e18) {
      return Value::integer(static_cast<int64_t>(number));
    }
  }
  site.spend(1);
  return otherwise.is_undefined() ? Value::integer(0) : otherwise;
}

Value filter_float(const Value& input, Arguments& arguments, const Site& site) {
  const Value otherwise = arguments.take("default");
  if (input.is_float()) return input;
  if (input.is_integer()) return Value::real(static_cast<double>(input.as_integer()));
  if (input.is_bool()) return Value::real(input.as_bool() ? 1.0 : 0.0);
  if (input.is_string()) {
    const std::string_view text = trim(input.text());
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return Value::real(number);
  }
  site.spend(1);
  return otherwise.is_undefined() ? Value::real(0.0) : otherwise;
}

Value filter_abs(const Value& input, Arguments&, const Site& site) {
  if (input.is_float()) return Value::real(std::fabs(input.as_float()));
  if (!input.is_integer()) site.fail("{} has no absolute value", input.kind_name());
  return input.as_integer() < 0 ? negate(input, site) : input;
}

Value filter_round(const Value& input, Arguments& arguments, const Site& site) {
  const int64_t digits = arguments.integer("precision", 0);
  if (!input.is_float() && !input.is_integer()) site.fail("{} cannot be rounded", input.kind_name());
  if (digits < 0 || digits > 15) site.fail("round to {} digits", digits);
  const double number = input.is_float() ? input.as_float() : static_cast<double>(input.as_integer());
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = std::nearbyint(number * scale) / scale;
  return Value::real(std::isfinite(scaled) ? scaled : number);
}

// --- lists and maps ---

Value filter_list(const Value& input, Arguments&, const Site& site) { return Value::list(elements(input, site)); }
Value filter_length(const Value& input, Arguments&, const Site& site) { return Value::integer(length(input, site)); }

Value filter_first(const Value& input, Arguments&, const Site& site) {
  const std::vector<Value> items = elements(input, site);
  return items.empty() ? Value::undefined("the first of nothing") : items.front();
}
Value filter_last(const Value& input, Arguments&, const Site& site) {
  const std::vector<Value> items = elements(input, site);
  return items.empty() ? Value::undefined("the last of nothing") : items.back();
}

Value filter_reverse(const Value& input, Arguments&, const Site& site) {
  std::vector<Value> items = elements(input, site);
  std::reverse(items.begin(), items.end());
  if (input.is_string()) return Value::string(joined(items, MarkedText(), site));
  return Value::list(std::move(items));
}

Value filter_join(const Value& input, Arguments& arguments, const Site& site) {
  const Value separator = arguments.take("d");
  const std::string path = arguments.text("attribute", "");
  std::vector<Value> items = elements(input, site);
  if (!path.empty()) {
    for (Value& element : items) element = at_path(element, path, site);
  }
  return Value::string(joined(items, separator.is_undefined() ? MarkedText() : site.printed(separator), site));
}

// Sorting calls the comparison n log n times, and each pays for itself; an error in one must not leave std::sort with
// a broken order, which an exception does not.
void sort_by(std::vector<Value>& items, bool reverse, bool case_sensitive,
             const std::function<Value(const Value&)>& key, const Site& site) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& element : items) keyed.emplace_back(key(element), element);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int sign = order(a.first, b.first, case_sensitive, site);
    return reverse ? sign > 0 : sign < 0;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
}

Value filter_sort(const Value& input, Arguments& arguments, const Site& site) {
  const bool reverse = arguments.flag("reverse", false);
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const std::string path = arguments.text("attribute", "");
  std::vector<Value> items = elements(input, site);
  const auto key = [&](const Value& v) { return path.empty() ? v : at_path(v, path, site); };
  sort_by(items, reverse, case_sensitive, key, site);
  return Value::list(std::move(items));
}

Value filter_items(const Value& input, Arguments&, const Site& site) {
  if (input.is_undefined()) return Value::list({});
  if (!input.is_map()) site.fail("{} has no items", input.kind_name());
  site.spend(input.as_map().size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_map().entries()) pairs.push_back(Value::list({Value::string(key), value}));
  return Value::list(std::move(pairs));
}

Value filter_dictsort(const Value& input, Arguments& arguments, const Site& site) {
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const bool by_value = arguments.text("by", "key") == "value";
  const bool reverse = arguments.flag("reverse", false);
  if (!input.is_map()) site.fail("dictsort needs a mapping, not {}", input.kind_name());
  Arguments none(site, {}, {});
  std::vector<Value> pairs = filter_items(input, none, site).as_list();
  sort_by(
      pairs, reverse, case_sensitive, [&](const Value& v) { return v.as_list()[by_value ? 1 : 0]; }, site);
  return Value::list(std::move(pairs));
}

Value filter_unique(const Value& input, Arguments&, const Site& site) {
  std::vector<Value> kept;
  for (const Value& element : elements(input, site)) {
    site.spend(element.weight() * (kept.size() + 1));
    if (std::none_of(kept.begin(), kept.end(), [&](const Value& k) { return equal(k, element); })) {
      kept.push_back(element);
    }
  }
  return Value::list(std::move(kept));
}

Value filter_sum(const Value& input, Arguments& arguments, const Site& site) {
  const std::string path = arguments.text("attribute", "");
  Value total = Value::integer(0);
  for (const Value& element : elements(input, site)) {
    total = binary("+", total, path.empty() ? element : at_path(element, path, site), site);
  }
  return total;
}

template <int kSign>
Value filter_extreme(const Value& input, Arguments&, const Site& site) {
  Value best = Value::undefined("the extreme of nothing");
  for (const Value& element : elements(input, site)) {
    if (best.is_undefined() || order(element, best, false, site) * kSign > 0) best = element;
  }
  return best;
}

Value filter_default(const Value& input, Arguments& arguments, const Site&) {
  const Value otherwise = arguments.take("default_value");
  const bool falsy_too = arguments.flag("boolean", false);
  const bool keeps = falsy_too ? input.truthy() : !input.is_undefined();
  if (keeps) return input;
  return otherwise.is_undefined() ? Value::string("", true) : otherwise;
}

// map(attribute='x') or map('filter', ...).
Value filter_map(const Value& input, Arguments& arguments, const Site& site) {
  std::vector<Value> items = elements(input, site);
  if (arguments.has_positional()) {
    const std::string name = arguments.text("filter", "");
    const std::vector<Value> rest = arguments.rest();
    const auto named = arguments.take_named();
    for (Value& element : items) element = apply_filter(name, element, Arguments(site, rest, named), site);
  } else {
    const std::string path = arguments.text("attribute", "");
    const Value otherwise = arguments.take("default");
    if (path.empty()) site.fail("map() needs a filter or an attribute");
    for (Value& element : items) {
      element = at_path(element, path, site);
      if (element.is_undefined() && !otherwise.is_undefined()) element = otherwise;
    }
  }
  return Value::list(std::move(items));
}

// select, reject: elements a test is true or false for. selectattr, rejectattr: by an attribute of theirs.
template <bool kWanted, bool kByAttribute>
Value filter_select(const Value& input, Arguments& arguments, const Site& site) {
  const std::string path = kByAttribute ? arguments.text("attribute", "") : "";
  if (kByAttribute && path.empty()) site.fail("selectattr() and rejectattr() need an attribute");
  const std::string test = arguments.text("test", "");
  const std::vector<Value> rest = arguments.rest();
  std::vector<Value> kept;
  for (const Value& element : elements(input, site)) {
    const Value tested = kByAttribute ? at_path(element, path, site) : element;
    const bool holds = test.empty() ? tested.truthy() : apply_test(test, tested, Arguments(site, rest, {}), site);
    if (holds == kWanted) kept.push_back(element);
  }
  return Value::list(std::move(kept));
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = {
      {"abs", filter_abs},
      {"capitalize", filter_capitalize},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"float", filter_float},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"lower", filter_lower},
      {"map", filter_map},
      {"max", filter_extreme<1>},
      {"min", filter_extreme<-1>},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"round", filter_round},
      {"safe", filter_safe},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"sort", filter_sort},
      {"string", filter_string},
      {"sum", filter_sum},
      {"title", filter_title},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"unique", filter_unique},
      {"upper", filter_upper},
  };
  return kFilters;
}

}  // namespace

Value apply_filter(std::string_view name, const Value& input, Arguments arguments, const Site& site) {
  const auto found = filters().find(name);
  if (found == filters().end()) site.fail("there is no filter {}", name);
  site.spend(1);
  Value result = found->second(input, arguments, site);
  arguments.finish();
  return result;
}

}  // namespace carat::text::jinja
