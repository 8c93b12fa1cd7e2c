#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/site.h"

namespace carat::text::jinja {

// Arithmetic, + on strings and lists, and ~.
Value binary(std::string_view op, const Value& left, const Value& right, const Site& site);
// == != < <= > >= in, not in.
bool compare(std::string_view op, const Value& left, const Value& right, const Site& site);
// Less than zero, zero, more than zero; throws for what has no order. Strings without regard to case unless asked.
int order(const Value& left, const Value& right, bool case_sensitive, const Site& site);
Value negate(const Value& value, const Site& site);

// value.name and value[key]; undefined when there is no such thing. Throws for attributes of what is itself undefined.
Value attribute(const Value& value, std::string_view name, const Site& site);
Value item(const Value& value, const Value& key, const Site& site);
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, const Site& site);

// What a loop or a filter goes through: a list, the keys of a map, the characters of a string; nothing for undefined.
std::vector<Value> elements(const Value& value, const Site& site);
// How many characters, elements or entries.
int64_t length(const Value& value, const Site& site);

}  // namespace carat::text::jinja
