#include "server/api/fields.h"

#include <cmath>
#include <utility>

#include "server/api/api_error.h"
#include "text/value_json.h"

namespace carat::server {

namespace {
bool is_given(const text::Value& value) { return !value.is_undefined() && !value.is_none(); }

std::string_view name_of(const std::string& path) { return path.empty() ? std::string_view("the body") : path; }
}  // namespace

void refuse_kind(const std::string& path, std::string_view wanted, const text::Value& value) {
  refuse(path, "{} must be {}, not {}", name_of(path), wanted, value.kind_name());
}

std::string item_path(std::string_view list, size_t index) { return fmt::format("{}[{}]", list, index); }

Fields::Fields(text::Value value, std::string path) : value_(std::move(value)), path_(std::move(path)) {
  if (!value_.is_map()) refuse_kind(path_, "a JSON object", value_);
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool Fields::has(std::string_view key) const { return is_given(value_.get(key)); }

text::Value Fields::get(std::string_view key) const { return value_.get(key); }

std::optional<std::string> Fields::text(std::string_view key) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  if (!value.is_string()) refuse_kind(path_of(key), "a string", value);
  return value.text();
}

std::string Fields::required_text(std::string_view key) const {
  std::optional<std::string> given = text(key);
  if (!given) refuse(path_of(key), "{} is required", path_of(key));
  return *std::move(given);
}

std::optional<bool> Fields::flag(std::string_view key) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  if (!value.is_bool()) refuse_kind(path_of(key), "true or false", value);
  return value.as_bool();
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t least, int64_t most) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  int64_t number = 0;
  if (value.is_integer()) {
    number = value.as_integer();
  } else if (value.is_float() && std::trunc(value.as_float()) == value.as_float() &&
             std::abs(value.as_float()) < 9.0e15) {
    number = static_cast<int64_t>(value.as_float());  // JSON does not tell 3.0 from 3
  } else if (value.is_number()) {
    refuse(path_of(key), "{} must be an integer from {} to {}", path_of(key), least, most);
  } else {
    refuse_kind(path_of(key), "an integer", value);
  }
  if (number < least || number > most) {
    refuse(path_of(key), "{} is {}; it must be from {} to {}", path_of(key), number, least, most);
  }
  return number;
}

std::optional<double> Fields::number(std::string_view key, double least, double most) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  double number = 0.0;
  if (value.is_integer()) {
    number = static_cast<double>(value.as_integer());
  } else if (value.is_float()) {
    number = value.as_float();
  } else if (value.is_number()) {
    refuse(path_of(key), "{} must be from {} to {}", path_of(key), least, most);
  } else {
    refuse_kind(path_of(key), "a number", value);
  }
  if (!(number >= least && number <= most)) {
    refuse(path_of(key), "{} is {}; it must be from {} to {}", path_of(key), number, least, most);
  }
  return number;
}

std::optional<Fields> Fields::object(std::string_view key) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  return Fields(value, path_of(key));
}

std::optional<std::vector<text::Value>> Fields::list(std::string_view key) const {
  const text::Value value = get(key);
  if (!is_given(value)) return std::nullopt;
  if (!value.is_list()) refuse_kind(path_of(key), "a list", value);
  return value.as_list();
}

std::vector<std::string> Fields::texts(std::string_view key, size_t most) const {
  const text::Value value = get(key);
  if (!is_given(value)) return {};
  if (value.is_string()) return {value.text()};
  if (!value.is_list()) refuse_kind(path_of(key), "a string or a list of strings", value);
  std::vector<std::string> texts;
  for (const text::Value& item : value.as_list()) {
    if (!item.is_string()) refuse_kind(item_path(path_of(key), texts.size()), "a string", item);
    texts.push_back(item.text());
  }
  if (texts.size() > most)
    refuse(path_of(key), "{} has {} entries; at most {} are allowed", path_of(key), texts.size(), most);
  return texts;
}

Fields parse_body(std::string_view json) {
  text::Value value;
  try {
    value = text::parse_json(json, false, "the body");
  } catch (const Error& error) {
    throw ApiError({.message = error.what(), .code = "invalid_json"});
  }
  return Fields(std::move(value), "");
}

}  // namespace carat::server
