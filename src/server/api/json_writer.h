#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace carat::server {

// Appends compact JSON to a string, in the order of the calls; commas are its business. The caller closes what it
// opens. Numbers that JSON cannot hold (NaN, infinity) become null.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_list() { return open('['); }
  JsonWriter& end_list() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  template <typename Number>
  requires std::is_integral_v<Number> JsonWriter& value(Number number) {
    if constexpr (std::is_same_v<Number, bool>) return raw(number ? "true" : "false");
    if constexpr (std::is_signed_v<Number>) return integer(static_cast<int64_t>(number));
    return unsigned_integer(static_cast<uint64_t>(number));
  }
  JsonWriter& null() { return raw("null"); }
  // JSON text as it is.
  JsonWriter& raw(std::string_view json);

  template <typename Value>
  JsonWriter& field(std::string_view name, const Value& content) {
    return key(name).value(content);
  }
  JsonWriter& null_field(std::string_view name) { return key(name).null(); }
  JsonWriter& raw_field(std::string_view name, std::string_view json) { return key(name).raw(json); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  void separate();

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace carat::server
