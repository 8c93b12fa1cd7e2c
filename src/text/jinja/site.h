#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"
#include "text/value.h"

namespace carat::text::jinja {

// What is left of the limits of one rendering.
struct Budget {
  uint64_t steps;
  uint64_t bytes;
};

// Where an operation of a template stands, and who pays for it.
class Site {
 public:
  // Steps for an element of a new list, so that the limit on steps is one on memory too.
  static constexpr uint64_t kNewElement = 4;

  Site(Budget& budget, int line) : budget_(budget), line_(line) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(line_, fmt::format(format, std::forward<Args>(args)...));
  }
  int line() const { return line_; }

  void spend(uint64_t steps) const {
    if (steps > budget_.steps) fail("the template takes too long");
    budget_.steps -= steps;
  }
  void spend_bytes(uint64_t bytes) const {
    if (bytes > budget_.bytes) fail("the template makes too much text");
    budget_.bytes -= bytes;
  }
  // A new string, paid for.
  Value string(MarkedText text) const {
    spend_bytes(text.size());
    return Value::string(std::move(text));
  }
  // What printing shows, paid for before it is made: escapes make a text up to four times as long.
  MarkedText printed(const Value& value) const {
    spend(value.weight());
    spend_bytes(value.is_string() ? value.as_string().size() : 64 * value.weight() * 4);
    return python_text(value);
  }

 private:
  Budget& budget_;
  int line_;
};

// The arguments of a filter, test, method or function, taken one after the other. finish() refuses what nobody took.
class Arguments {
 public:
  Arguments(const Site& site, std::vector<Value> positional, std::vector<std::pair<std::string, Value>> named)
      : site_(site), positional_(std::move(positional)), named_(std::move(named)) {}

  // The next one by position, or the one called `name`; undefined when there is neither.
  Value take(std::string_view name);
  Value required(std::string_view name);
  // Throw unless it is of that kind; the second argument is for an absent or none one.
  std::string text(std::string_view name, std::string_view absent);
  int64_t integer(std::string_view name, int64_t absent);
  bool flag(std::string_view name, bool absent);

  bool has_positional() const { return next_ < positional_.size(); }
  std::vector<Value> rest();  // by position, all that are left
  std::vector<std::pair<std::string, Value>> take_named() { return std::exchange(named_, {}); }
  void finish() const;

 private:
  const Site& site_;
  std::vector<Value> positional_;
  std::vector<std::pair<std::string, Value>> named_;
  size_t next_ = 0;
};

}  // namespace carat::text::jinja
