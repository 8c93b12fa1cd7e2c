#include "text/value_json.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text {

namespace {

// Builds a Value from the parser's events. nlohmann's own tree would lose integers beyond 64 bits.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(bool from_template) : from_template_(from_template) {}

  Value take() { return std::move(result_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(Value::integer(static_cast<int64_t>(value)));
    return add(Value::big_integer(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& literal) override {
    const bool is_integer = literal.find_first_of(".eE") == std::string::npos;
    return add(is_integer ? Value::big_integer(literal) : Value::real(value));
  }
  bool string(string_t& value) override { return add(Value::string(value, from_template_)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(ValueMap()); }
  bool key(string_t& value) override {
    open_.back().key = value;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(std::vector<Value>()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_ = fmt::format("no valid JSON at byte {}", position);
    return false;
  }

 private:
  struct Open {
    std::variant<std::vector<Value>, ValueMap> container;
    std::string key;
  };

  template <typename Container>
  bool open(Container container) {
    if (open_.size() >= Value::kMaxDepth) {
      error_ = fmt::format("nests more than {} deep", Value::kMaxDepth);
      return false;
    }
    open_.push_back({std::move(container), {}});
    return true;
  }
  bool close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (auto* list = std::get_if<std::vector<Value>>(&closed.container)) return add(Value::list(std::move(*list)));
    return add(Value::map(std::move(std::get<ValueMap>(closed.container))));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (auto* list = std::get_if<std::vector<Value>>(&open_.back().container)) {
      list->push_back(std::move(value));
    } else {
      std::get<ValueMap>(open_.back().container).set(MarkedText(open_.back().key, from_template_), std::move(value));
    }
    return true;
  }

  bool from_template_;
  std::vector<Open> open_;
  Value result_;
  std::string error_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& out) : style_(style), out_(out) {}

  void write(const Value& value, size_t level) {
    switch (value.kind()) {
      case ValueKind::kUndefined:
      case ValueKind::kNone:
        out_ += "null";
        break;
      case ValueKind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case ValueKind::kInteger:
      case ValueKind::kFloat:
      case ValueKind::kBigInteger:
        out_ += python_repr(value);
        break;
      case ValueKind::kString:
        append_json_string(value.text(), style_.ensure_ascii, out_);
        break;
      case ValueKind::kList:
        write_list(value.as_list(), level);
        break;
      case ValueKind::kMap:
        write_map(value.as_map(), level);
        break;
      case ValueKind::kNamespace:
      case ValueKind::kCallable:
        fail(ErrorCode::kBadArgument, "{} has no JSON form", value.kind_name());
    }
  }

 private:
  void write_list(const std::vector<Value>& items, size_t level) {
    out_ += '[';
    for (const Value& item : items) {
      begin_item(&item == items.data(), level);
      write(item, level + 1);
    }
    end_items(items.empty(), level);
    out_ += ']';
  }

  void write_map(const ValueMap& map, size_t level) {
    std::vector<const ValueMap::Entry*> entries;
    for (const auto& entry : map.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return a->key.text() < b->key.text(); });
    }
    out_ += '{';
    for (const auto* entry : entries) {
      begin_item(entry == entries.front(), level);
      append_json_string(entry->key.text(), style_.ensure_ascii, out_);
      out_ += style_.key_separator;
      write(entry->value, level + 1);
    }
    end_items(entries.empty(), level);
    out_ += '}';
  }

  void begin_item(bool first, size_t level) {
    if (!first) out_ += style_.item_separator;
    if (style_.indent) new_line(level + 1);
  }
  void end_items(bool empty, size_t level) {
    if (style_.indent && !empty) new_line(level);
  }
  void new_line(size_t level) {
    out_ += '\n';
    out_.append(level * static_cast<size_t>(*style_.indent), ' ');
  }

  const JsonStyle& style_;
  std::string& out_;
};

void append_escape(uint32_t unit, std::string& out) { out += fmt::format("\\u{:04x}", unit); }

void append_non_ascii(std::string_view sequence, bool ensure_ascii, std::string& out) {
  if (!ensure_ascii) {
    out += sequence;
    return;
  }
  const uint32_t code_point = code_point_of(sequence);
  if (code_point < 0x10000) return append_escape(code_point, out);
  append_escape(0xd800 + ((code_point - 0x10000) >> 10), out);
  append_escape(0xdc00 + ((code_point - 0x10000) & 0x3ff), out);
}

char short_escape(char c) {
  switch (c) {
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '"':
    case '\\':
      return c;
    default:
      return 0;
  }
}

}  // namespace

Value parse_json(std::string_view json, bool from_template, std::string_view what) {
  ValueBuilder builder(from_template);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) {
    fail(ErrorCode::kBadArgument, "{}: {}", what, builder.error().empty() ? "no valid JSON" : builder.error());
  }
  return builder.take();
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(style, out).write(value, 0);
  return out;
}

std::string to_compact_json(const Value& value) {
  JsonStyle style;
  style.item_separator = ",";
  style.key_separator = ":";
  return to_json(value, style);
}

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (const char escape = short_escape(c)) {
      out += '\\';
      out += escape;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append_escape(static_cast<unsigned char>(c), out);
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
      ++at;
    } else if (const size_t length = utf8_sequence_length(text.substr(at))) {
      append_non_ascii(text.substr(at, length), ensure_ascii, out);
      at += length;
    } else {
      append_non_ascii("\ufffd", ensure_ascii, out);  // JSON is UTF-8: a stray byte cannot be written
      ++at;
    }
  }
  out += '"';
}

}  // namespace carat::text
