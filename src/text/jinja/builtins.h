#pragma once

#include <string_view>

#include "text/jinja/site.h"

namespace carat::text::jinja {

// input | name(arguments). Throws for a filter that does not exist or does not fit the value.
Value apply_filter(std::string_view name, const Value& input, Arguments arguments, const Site& site);

// input is name(arguments).
bool apply_test(std::string_view name, const Value& input, Arguments arguments, const Site& site);

// object.name(arguments) for strings, lists and maps.
Value call_method(const Value& object, std::string_view name, Arguments arguments, const Site& site);

// The functions every template can call: range, namespace, dict, raise_exception, strftime_now.
Value call_function(std::string_view name, Arguments arguments, const Site& site);
bool is_function(std::string_view name);

}  // namespace carat::text::jinja
