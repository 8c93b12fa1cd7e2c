#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace carat::test {

using Bytes = std::vector<std::byte>;

// Appends the little-endian encoding of a number.
template <typename T>
requires std::is_arithmetic_v<T>
void append(Bytes& out, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), first, first + sizeof value);
}
void append_text(Bytes& out, std::string_view text);    // the bytes alone
void append_string(Bytes& out, std::string_view text);  // length, then the bytes

// An encoded key with its value. The type is a number, so that a test can claim one that does not exist.
template <typename T>
Bytes encode_key(std::string_view key, uint32_t type, T value) {
  Bytes out;
  append_string(out, key);
  append(out, type);
  append(out, value);
  return out;
}
Bytes encode_string_key(std::string_view key, std::string_view value);
// `elements` are the encoded elements; `count` is what the file claims.
Bytes encode_array_key(std::string_view key, uint32_t element_type, uint64_t count, const Bytes& elements);

// A GGUF file written out by hand, independent of gguf::Writer: every field can lie.
struct GgufSketch {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> ne;
    uint32_t type = 0;
    uint64_t offset = 0;
    std::optional<uint32_t> claimed_dimensions = {};
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<Bytes> keys;
  std::vector<Tensor> tensors;
  std::optional<uint64_t> claimed_keys = {};
  std::optional<uint64_t> claimed_tensors = {};
  uint32_t alignment = 32;  // of the data section; a general.alignment key is not added
  uint64_t data_bytes = 0;

  Bytes encode() const;
};

// A small valid file: every value type, arrays, and tensors of several types and dimensions.
GgufSketch tiny_gguf();

}  // namespace carat::test
