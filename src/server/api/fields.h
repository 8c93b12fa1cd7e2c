#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/value.h"

namespace carat::server {

// A JSON object of a request with its place in it, so that every complaint names the field. An absent field and null
// are the same: not given. All readers throw ApiError for a value of another type or out of range.
class Fields {
 public:
  // `path` is empty for the body itself. Throws where `value` is not an object.
  Fields(text::Value value, std::string path);

  const text::Value& value() const { return value_; }
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const;

  bool has(std::string_view key) const;         // given, and not null
  text::Value get(std::string_view key) const;  // undefined where it is not given
  std::optional<std::string> text(std::string_view key) const;
  std::string required_text(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most) const;
  std::optional<double> number(std::string_view key, double least, double most) const;
  std::optional<Fields> object(std::string_view key) const;
  // The items of a list; none where it is not given.
  std::optional<std::vector<text::Value>> list(std::string_view key) const;
  // A string, or a list of strings.
  std::vector<std::string> texts(std::string_view key, size_t most) const;

 private:
  text::Value value_;
  std::string path_;
};

// The body of a request. Throws ApiError (invalid_json) for what is not a JSON object.
Fields parse_body(std::string_view json);

// "a[3]" and "a.b", for the places of things in a request.
std::string item_path(std::string_view list, size_t index);

// "true" as a value reads in messages: its kind, and what was wanted instead.
[[noreturn]] void refuse_kind(const std::string& path, std::string_view wanted, const text::Value& value);

}  // namespace carat::server
