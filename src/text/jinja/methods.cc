#include <algorithm>
#include <ctime>
#include <map>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/letter_case.h"

namespace carat::text::jinja {

namespace {

using Method = Value (*)(const Value& object, Arguments& arguments, const Site& site);
using MethodTable = std::map<std::string_view, Method>;

template <Side kSide>
Value strip(const Value& object, Arguments& arguments, const Site& site) {
  return Value::string(stripped(object.as_string(), kSide, arguments.text("chars", ""), site));
}

Value split_text(const Value& object, Arguments& arguments, const Site& site) {
  const Value separator = arguments.take("sep");
  const int64_t limit = arguments.integer("maxsplit", -1);
  if (separator.is_undefined() || separator.is_none()) return Value::list(split(object.as_string(), "", limit, site));
  if (!separator.is_string() || separator.text().empty()) site.fail("split() needs a separator that is a string");
  return Value::list(split(object.as_string(), separator.text(), limit, site));
}

// startswith and endswith take one string or several.
template <bool kStart>
Value has_affix(const Value& object, Arguments& arguments, const Site& site) {
  const Value affix = arguments.required(kStart ? "prefix" : "suffix");
  const std::vector<Value> affixes = affix.is_list() ? affix.as_list() : std::vector<Value>{affix};
  const std::string& text = object.text();
  for (const Value& one : affixes) {
    if (!one.is_string()) site.fail("{} is no string to begin or end with", one.kind_name());
    site.spend(one.weight());
    if (kStart ? text.starts_with(one.text()) : text.ends_with(one.text())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kPrefix>
Value remove_affix(const Value& object, Arguments& arguments, const Site& site) {
  const std::string affix = arguments.text(kPrefix ? "prefix" : "suffix", "");
  const MarkedText& text = object.as_string();
  site.spend_bytes(text.size());
  if (kPrefix && text.text().starts_with(affix)) return Value::string(text.part(affix.size(), text.size()));
  if (!kPrefix && text.text().ends_with(affix)) return Value::string(text.part(0, text.size() - affix.size()));
  return object;
}

Value replace_text(const Value& object, Arguments& arguments, const Site& site) {
  const Value from = arguments.required("old"), to = arguments.required("new");
  if (!from.is_string() || !to.is_string()) site.fail("replace() takes two strings");
  return Value::string(replaced(object.as_string(), from.text(), to.as_string(), arguments.integer("count", -1), site));
}

Value find_text(const Value& object, Arguments& arguments, const Site& site) {
  const std::string wanted = arguments.text("sub", "");
  site.spend(object.weight());
  const size_t found = object.text().find(wanted);
  if (found == std::string::npos) return Value::integer(-1);
  return Value::integer(length(Value::string(object.as_string().part(0, found)), site));
}

Value count_text(const Value& object, Arguments& arguments, const Site& site) {
  const std::string wanted = arguments.text("sub", "");
  if (wanted.empty()) site.fail("count() needs something to count");
  return Value::integer(static_cast<int64_t>(split(object.as_string(), wanted, -1, site).size()) - 1);
}

Value is_digits(const Value& object, Arguments&, const Site& site) {
  site.spend(object.weight());
  const std::string& text = object.text();
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return Value::boolean(!text.empty() && std::all_of(text.begin(), text.end(), digit));
}

const MethodTable& string_methods() {
  static const MethodTable kMethods = {
      {"strip", strip<Side::kBoth>},
      {"lstrip", strip<Side::kStart>},
      {"rstrip", strip<Side::kEnd>},
      {"split", split_text},
      {"splitlines",
       [](const Value& o, Arguments&, const Site& s) { return Value::list(split_lines(o.as_string(), s)); }},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace_text},
      {"find", find_text},
      {"count", count_text},
      {"isdigit", is_digits},
      {"upper", [](const Value& o, Arguments&, const Site& s) { return s.string(o.as_string().mapped(to_upper)); }},
      {"lower", [](const Value& o, Arguments&, const Site& s) { return s.string(o.as_string().mapped(to_lower)); }},
      {"title", [](const Value& o, Arguments&, const Site& s) { return Value::string(title_case(o.as_string(), s)); }},
      {"capitalize",
       [](const Value& o, Arguments&, const Site& s) { return Value::string(capitalised(o.as_string(), s)); }},
      {"join",
       [](const Value& o, Arguments& a, const Site& s) {
         return Value::string(joined(elements(a.required("iterable"), s), o.as_string(), s));
       }},
  };
  return kMethods;
}

Value get_entry(const Value& object, Arguments& arguments, const Site& site) {
  const Value key = arguments.required("key");
  const Value otherwise = arguments.take("default");
  if (key.is_string()) {
    if (const Value* found = object.as_map().find(key.text())) return *found;
  }
  site.spend(1);
  return otherwise.is_undefined() ? Value::none() : otherwise;
}

Value values_of(const Value& object, Arguments&, const Site& site) {
  site.spend(object.as_map().size());
  std::vector<Value> values;
  for (const auto& entry : object.as_map().entries()) values.push_back(entry.value);
  return Value::list(std::move(values));
}

const MethodTable& map_methods() {
  static const MethodTable kMethods = {
      {"get", get_entry},
      {"keys", [](const Value& o, Arguments&, const Site& s) { return Value::list(elements(o, s)); }},
      {"values", values_of},
      {"items",
       [](const Value& o, Arguments&, const Site& s) {
         return apply_filter("items", o, {s, {}, {}}, s);
       }},
  };
  return kMethods;
}

Value make_range(Arguments& arguments, const Site& site) {
  const Value first = arguments.required("start");
  const Value second = arguments.take("stop");
  const int64_t step = arguments.integer("step", 1);
  if (!first.is_integer() || (!second.is_undefined() && !second.is_integer())) site.fail("range() takes integers");
  if (step == 0) site.fail("the step of range() is zero");
  const int64_t start = second.is_undefined() ? 0 : first.as_integer();
  const int64_t stop = second.is_undefined() ? first.as_integer() : second.as_integer();
  std::vector<Value> numbers;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    site.spend(Site::kNewElement);
    if (numbers.size() >= Value::kMaxWeight / 4) site.fail("range() is too long");
    numbers.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(std::move(numbers));
}

ValueMap entries_of(Arguments& arguments, const Site& site) {
  ValueMap entries;
  if (arguments.has_positional()) {
    const Value source = arguments.take("mapping");
    if (!source.is_map()) site.fail("{} is no mapping", source.kind_name());
    site.spend(source.weight());
    entries = ValueMap(source.as_map());
  }
  for (auto& [name, value] : arguments.take_named()) entries.set(MarkedText(name, true), std::move(value));
  return entries;
}

Value time_now(Arguments& arguments, const Site& site) {
  const std::string format = arguments.text("format", "");
  if (format.size() > 200) site.fail("the format of strftime_now() is too long");
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char buffer[4096];
  // strftime returns 0 for an empty result too, and the buffer holds any result of so short a format.
  return Value::string(std::string_view(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &local)), true);
}

[[noreturn]] Value raise(Arguments& arguments, const Site& site) {
  const Value message = arguments.take("message");
  fail(ErrorCode::kBadArgument, "the chat template refuses this conversation: {}", site.printed(message).text());
}

}  // namespace

Value call_method(const Value& object, std::string_view name, Arguments arguments, const Site& site) {
  static const MethodTable kNone;
  if (object.is_undefined()) site.fail("{} is undefined, so it has no {}()", object.undefined_name(), name);
  const MethodTable& methods = object.is_string() ? string_methods() : object.is_map() ? map_methods() : kNone;
  const auto found = methods.find(name);
  if (found == methods.end()) site.fail("{} has no method {}()", object.kind_name(), name);
  site.spend(1);
  Value result = found->second(object, arguments, site);
  arguments.finish();
  return result;
}

bool is_function(std::string_view name) {
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception" ||
         name == "strftime_now";
}

Value call_function(std::string_view name, Arguments arguments, const Site& site) {
  site.spend(1);
  Value result;
  if (name == "range") result = make_range(arguments, site);
  if (name == "namespace") result = Value::name_space(entries_of(arguments, site));
  if (name == "dict") result = Value::map(entries_of(arguments, site));
  if (name == "strftime_now") result = time_now(arguments, site);
  if (name == "raise_exception") raise(arguments, site);
  arguments.finish();
  return result;
}

}  // namespace carat::text::jinja
