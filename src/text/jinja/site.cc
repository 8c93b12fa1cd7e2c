#include "text/jinja/site.h"

#include <algorithm>

namespace carat::text::jinja {

Value Arguments::take(std::string_view name) {
  if (has_positional()) return positional_[next_++];
  const auto found = std::find_if(named_.begin(), named_.end(), [&](const auto& a) { return a.first == name; });
  if (found == named_.end()) return Value::undefined(std::string(name));
  Value value = std::move(found->second);
  named_.erase(found);
  return value;
}

Value Arguments::required(std::string_view name) {
  Value value = take(name);
  if (value.is_undefined()) site_.fail("the argument {} is missing or undefined", name);
  return value;
}

std::string Arguments::text(std::string_view name, std::string_view absent) {
  const Value value = take(name);
  if (value.is_undefined() || value.is_none()) return std::string(absent);
  if (!value.is_string()) site_.fail("the argument {} is {}, not a string", name, value.kind_name());
  return value.text();
}

int64_t Arguments::integer(std::string_view name, int64_t absent) {
  const Value value = take(name);
  if (value.is_undefined() || value.is_none()) return absent;
  if (value.is_bool()) return value.as_bool();
  if (!value.is_integer()) site_.fail("the argument {} is {}, not an integer", name, value.kind_name());
  return value.as_integer();
}

bool Arguments::flag(std::string_view name, bool absent) {
  const Value value = take(name);
  return value.is_undefined() || value.is_none() ? absent : value.truthy();
}

std::vector<Value> Arguments::rest() {
  std::vector<Value> values(positional_.begin() + static_cast<std::ptrdiff_t>(next_), positional_.end());
  next_ = positional_.size();
  return values;
}

void Arguments::finish() const {
  if (has_positional()) site_.fail("too many arguments");
  if (!named_.empty()) site_.fail("no argument is called {}", named_.front().first);
}

}  // namespace carat::text::jinja
