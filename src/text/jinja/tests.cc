#include <map>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/letter_case.h"

namespace carat::text::jinja {

namespace {

using Test = bool (*)(const Value& input, Arguments& arguments, const Site& site);

int64_t whole_number(const Value& value, const Site& site) {
  if (!value.is_integer()) site.fail("{} is neither odd nor even", value.kind_name());
  return value.as_integer();
}

bool is_divisible(const Value& input, Arguments& arguments, const Site& site) {
  const int64_t by = arguments.integer("num", 0);
  if (by == 0) site.fail("division by zero");
  return by == -1 || whole_number(input, site) % by == 0;
}

bool is_same(const Value& input, Arguments& arguments, const Site& site) {
  return compare("==", input, arguments.take("other"), site);
}

template <char kFirst, char kSecond>
bool is_ordered(const Value& input, Arguments& arguments, const Site& site) {
  constexpr char kOperator[] = {kFirst, kSecond, 0};
  return compare(kOperator, input, arguments.required("other"), site);
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> kTests = {
      {"defined", [](const Value& v, Arguments&, const Site&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, Arguments&, const Site&) { return v.is_undefined(); }},
      {"none", [](const Value& v, Arguments&, const Site&) { return v.is_none(); }},
      {"string", [](const Value& v, Arguments&, const Site&) { return v.is_string(); }},
      {"mapping", [](const Value& v, Arguments&, const Site&) { return v.is_map(); }},
      {"boolean", [](const Value& v, Arguments&, const Site&) { return v.is_bool(); }},
      {"integer",
       [](const Value& v, Arguments&, const Site&) { return v.is_integer() || v.kind() == ValueKind::kBigInteger; }},
      {"float", [](const Value& v, Arguments&, const Site&) { return v.is_float(); }},
      // True and false are numbers to Python.
      {"number", [](const Value& v, Arguments&, const Site&) { return v.is_number() || v.is_bool(); }},
      {"sequence", [](const Value& v, Arguments&, const Site&) { return v.is_list() || v.is_map() || v.is_string(); }},
      {"iterable", [](const Value& v, Arguments&,
                      const Site&) { return v.is_list() || v.is_map() || v.is_string() || v.is_undefined(); }},
      {"callable", [](const Value& v, Arguments&, const Site&) { return v.is_callable(); }},
      {"true", [](const Value& v, Arguments&, const Site&) { return v.is_bool() && v.as_bool(); }},
      {"false", [](const Value& v, Arguments&, const Site&) { return v.is_bool() && !v.as_bool(); }},
      {"odd", [](const Value& v, Arguments&, const Site& site) { return whole_number(v, site) % 2 != 0; }},
      {"even", [](const Value& v, Arguments&, const Site& site) { return whole_number(v, site) % 2 == 0; }},
      {"divisibleby", is_divisible},
      {"eq", is_same},
      {"equalto", is_same},
      {"sameas", is_same},
      {"ne", [](const Value& v, Arguments& a, const Site& site) { return !is_same(v, a, site); }},
      {"lt", is_ordered<'<', 0>},
      {"lessthan", is_ordered<'<', 0>},
      {"gt", is_ordered<'>', 0>},
      {"greaterthan", is_ordered<'>', 0>},
      {"le", is_ordered<'<', '='>},
      {"ge", is_ordered<'>', '='>},
      {"in", [](const Value& v, Arguments& a, const Site& site) { return compare("in", v, a.required("seq"), site); }},
      {"lower",
       [](const Value& v, Arguments&, const Site&) { return v.is_string() && to_lower(v.text()) == v.text(); }},
      {"upper",
       [](const Value& v, Arguments&, const Site&) { return v.is_string() && to_upper(v.text()) == v.text(); }},
  };
  return kTests;
}

}  // namespace

bool apply_test(std::string_view name, const Value& input, Arguments arguments, const Site& site) {
  const auto found = tests().find(name);
  if (found == tests().end()) site.fail("there is no test {}", name);
  site.spend(input.weight());
  const bool result = found->second(input, arguments, site);
  arguments.finish();
  return result;
}

}  // namespace carat::text::jinja
