#include "model/metadata_edit.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace carat::model {
namespace {

using gguf::ValueType;

template <typename Number>
Number parse_number(std::string_view text, std::string_view edit, std::string_view kind) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) {
    fail(ErrorCode::kBadArgument, "{}: \"{}\" is not {}", edit, text, kind);
  }
  return value;
}

enum class Kind { kUnsigned, kSigned, kFloat, kOther };

Kind kind_of(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kU16:
    case ValueType::kU32:
    case ValueType::kU64:
      return Kind::kUnsigned;
    case ValueType::kI8:
    case ValueType::kI16:
    case ValueType::kI32:
    case ValueType::kI64:
      return Kind::kSigned;
    case ValueType::kF32:
    case ValueType::kF64:
      return Kind::kFloat;
    default:
      return Kind::kOther;
  }
}

bool fits(int64_t value, ValueType type) {
  const bool is_signed = kind_of(type) == Kind::kSigned;
  const size_t bits = 8 * gguf::value_type_bytes(type);
  if (bits == 64) return is_signed || value >= 0;
  const int64_t values = int64_t{1} << bits;
  return is_signed ? value >= -values / 2 && value < values / 2 : value >= 0 && value < values;
}

// The type that the key keeps; those of new keys are the ones llama.cpp's converter writes.
ValueType stored_type(const MetadataEdit& edit, const gguf::Value* before) {
  if (before != nullptr) return before->type;
  if (const auto* integer = std::get_if<int64_t>(&edit.value)) {
    return std::in_range<int32_t>(*integer) ? ValueType::kI32 : ValueType::kI64;
  }
  if (std::holds_alternative<double>(edit.value)) return ValueType::kF32;
  return std::holds_alternative<bool>(edit.value) ? ValueType::kBool : ValueType::kString;
}

// The value as it is stored with that type; nothing where the two are of different kinds.
std::optional<decltype(gguf::Value::data)> stored_value(const MetadataEdit& edit, ValueType type) {
  const Kind kind = kind_of(type);
  if (const auto* integer = std::get_if<int64_t>(&edit.value)) {
    if (kind == Kind::kSigned) return *integer;
    if (kind == Kind::kUnsigned) return static_cast<uint64_t>(*integer);
  } else if (const auto* number = std::get_if<double>(&edit.value)) {
    if (kind == Kind::kFloat) return *number;
  } else if (const auto* truth = std::get_if<bool>(&edit.value)) {
    if (type == ValueType::kBool) return *truth;
  } else if (type == ValueType::kString) {
    return std::string_view(std::get<std::string>(edit.value));
  }
  return std::nullopt;
}

}  // namespace

MetadataEdit MetadataEdit::parse(std::string_view text) {
  const size_t equals = text.find('=');
  const size_t colon = equals == text.npos ? text.npos : text.find(':', equals);
  if (colon == text.npos || equals == 0) {
    fail(ErrorCode::kBadArgument, "{}: write KEY=TYPE:VALUE such as general.sampling.temp=float:0.2", text);
  }
  MetadataEdit edit{std::string(text.substr(0, equals)), {}};
  const std::string_view type = text.substr(equals + 1, colon - equals - 1);
  const std::string_view value = text.substr(colon + 1);
  if (edit.key == "general.alignment" || edit.key.starts_with("split.")) {
    fail(ErrorCode::kBadArgument, "{}: this key says where data lies in the file, so it cannot be changed alone", text);
  }
  if (type == "int") {
    edit.value = parse_number<int64_t>(value, text, "an integer");
  } else if (type == "float") {
    const auto number = parse_number<double>(value, text, "a number");
    if (!std::isfinite(static_cast<float>(number))) fail(ErrorCode::kBadArgument, "{}: give a finite number", text);
    edit.value = number;
  } else if (type == "bool") {
    if (value != "true" && value != "false") fail(ErrorCode::kBadArgument, "{}: give true or false", text);
    edit.value = value == "true";
  } else if (type == "str") {
    edit.value = std::string(value);
  } else {
    fail(ErrorCode::kBadArgument, "{}: known types are int, float, bool and str", text);
  }
  return edit;
}

void MetadataEdit::write(const gguf::Value* before, gguf::Writer& writer) const {
  const ValueType type = stored_type(*this, before);
  const auto stored = stored_value(*this, type);
  if (!stored) {
    fail(ErrorCode::kBadArgument, "{} holds a value of type {}; give it another of that kind", key,
         gguf::value_type_name(type));
  }
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer != nullptr && !fits(*integer, type)) {
    fail(ErrorCode::kBadArgument, "{} is stored as {}, which {} does not fit", key, gguf::value_type_name(type),
         *integer);
  }
  writer.add(key, {type, *stored});
}

}  // namespace carat::model
