// Values, arrays and the key-value store: the part of the container's interface that readers and writers share.
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "gguf/printable.h"
#include "gguf/reader.h"

namespace carat::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place and are little-endian");

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return "u8";
    case ValueType::kI8:
      return "i8";
    case ValueType::kU16:
      return "u16";
    case ValueType::kI16:
      return "i16";
    case ValueType::kU32:
      return "u32";
    case ValueType::kI32:
      return "i32";
    case ValueType::kF32:
      return "f32";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    case ValueType::kArray:
      return "array";
    case ValueType::kU64:
      return "u64";
    case ValueType::kI64:
      return "i64";
    case ValueType::kF64:
      return "f64";
  }
  return "unknown";
}

size_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

namespace {

template <typename T>
T element_at(const Array& array, uint64_t i) {
  CARAT_CHECK(i < array.bytes.size() / sizeof(T));
  T value;
  std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Calls visit with element i in its stored type.
template <typename Visitor>
auto visit_element(const Array& array, uint64_t i, Visitor&& visit) {
  switch (array.element) {
    case ValueType::kU8:
      return visit(element_at<uint8_t>(array, i));
    case ValueType::kI8:
      return visit(element_at<int8_t>(array, i));
    case ValueType::kU16:
      return visit(element_at<uint16_t>(array, i));
    case ValueType::kI16:
      return visit(element_at<int16_t>(array, i));
    case ValueType::kU32:
      return visit(element_at<uint32_t>(array, i));
    case ValueType::kI32:
      return visit(element_at<int32_t>(array, i));
    case ValueType::kF32:
      return visit(element_at<float>(array, i));
    case ValueType::kBool:
      return visit(element_at<uint8_t>(array, i));
    case ValueType::kU64:
      return visit(element_at<uint64_t>(array, i));
    case ValueType::kI64:
      return visit(element_at<int64_t>(array, i));
    case ValueType::kF64:
      return visit(element_at<double>(array, i));
    case ValueType::kString:
    case ValueType::kArray:
      break;
  }
  throw std::logic_error("an array of strings has no numbers");
}

}  // namespace

double Array::number(uint64_t i) const {
  return visit_element(*this, i, [](auto value) { return static_cast<double>(value); });
}

int64_t Array::integer(uint64_t i) const {
  return visit_element(*this, i, [&](auto value) -> int64_t {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      fail(ErrorCode::kBadFile, "an array of {} where integers are needed", value_type_name(element));
    } else {
      if (!std::in_range<int64_t>(value)) {
        fail(ErrorCode::kBadFile, "element {} of an array is {}, beyond the range of integers", i, value);
      }
      return static_cast<int64_t>(value);
    }
  });
}

void Metadata::add(std::string_view key, Value value) {
  if (!index_.emplace(key, entries_.size()).second) fail(ErrorCode::kBadFile, "key {} appears twice", printable(key));
  entries_.push_back({key, std::move(value)});
}

const Value* Metadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

namespace {

[[noreturn]] void fail_type(std::string_view key, const Value& value, std::string_view wanted) {
  fail(ErrorCode::kBadFile, "key {} holds a value of type {} where {} is needed", printable(key),
       value_type_name(value.type), wanted);
}

}  // namespace

std::optional<uint64_t> Metadata::unsigned_integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value->data)) {
    if (*number < 0) fail(ErrorCode::kBadFile, "key {} is {}, but must not be negative", printable(key), *number);
    return static_cast<uint64_t>(*number);
  }
  fail_type(key, *value, "an unsigned integer");
}

std::optional<double> Metadata::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->data)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) return static_cast<double>(*number);
  fail_type(key, *value, "a number");
}

std::optional<bool> Metadata::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* truth = std::get_if<bool>(&value->data)) return *truth;
  fail_type(key, *value, "a bool");
}

std::optional<std::string_view> Metadata::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string_view>(&value->data)) return *text;
  fail_type(key, *value, "a string");
}

const Array* Metadata::array(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* array = std::get_if<Array>(&value->data)) return array;
  fail_type(key, *value, "an array");
}

}  // namespace carat::gguf
