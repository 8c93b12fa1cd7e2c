#include "support/gguf_sketch.h"

namespace carat::test {

void append_text(Bytes& out, std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), first, first + text.size());
}

void append_string(Bytes& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  append_text(out, text);
}

Bytes encode_string_key(std::string_view key, std::string_view value) {
  Bytes out;
  append_string(out, key);
  append(out, uint32_t{8});
  append_string(out, value);
  return out;
}

Bytes encode_array_key(std::string_view key, uint32_t element_type, uint64_t count, const Bytes& elements) {
  Bytes out;
  append_string(out, key);
  append(out, uint32_t{9});
  append(out, element_type);
  append(out, count);
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}

Bytes GgufSketch::encode() const {
  Bytes out;
  append_text(out, magic);
  append(out, version);
  append(out, claimed_tensors.value_or(tensors.size()));
  append(out, claimed_keys.value_or(keys.size()));
  for (const Bytes& key : keys) out.insert(out.end(), key.begin(), key.end());
  for (const Tensor& tensor : tensors) {
    append_string(out, tensor.name);
    append(out, tensor.claimed_dimensions.value_or(static_cast<uint32_t>(tensor.ne.size())));
    for (const uint64_t dimension : tensor.ne) append(out, dimension);
    append(out, tensor.type);
    append(out, tensor.offset);
  }
  while (out.size() % alignment != 0) out.push_back(std::byte{0});
  for (uint64_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<std::byte>(i % 251));
  return out;
}

GgufSketch tiny_gguf() {
  GgufSketch sketch;
  Bytes strings;
  for (const std::string_view text : {"one", "", "three"}) append_string(strings, text);
  Bytes numbers;
  for (const int32_t number : {-1, 0, 2147483647}) append(numbers, number);
  Bytes floats;
  for (const float number : {0.5f, -2.0f}) append(floats, number);
  sketch.keys = {
      encode_string_key("general.architecture", "tiny"),
      encode_key("a.u8", 0, uint8_t{255}),
      encode_key("a.i8", 1, int8_t{-128}),
      encode_key("a.u16", 2, uint16_t{65535}),
      encode_key("a.i16", 3, int16_t{-32768}),
      encode_key("a.u32", 4, uint32_t{4294967295}),
      encode_key("a.i32", 5, int32_t{-2147483647}),
      encode_key("a.f32", 6, 1.5f),
      encode_key("a.bool", 7, uint8_t{1}),
      encode_key("a.u64", 10, uint64_t{1} << 63),
      encode_key("a.i64", 11, int64_t{-5}),
      encode_key("a.f64", 12, 0.1),
      encode_array_key("b.strings", 8, 3, strings),
      encode_array_key("b.i32", 5, 3, numbers),
      encode_array_key("b.f32", 6, 2, floats),
      encode_array_key("b.empty", 6, 0, {}),
      encode_array_key("b.bools", 7, 2, {std::byte{0}, std::byte{1}}),
  };
  // F32 [3, 2] is 24 bytes, Q8_0 [64] 68, F16 [2, 2, 2, 2] 32; each is padded to 32.
  sketch.tensors = {{"first.weight", {3, 2}, 0, 0}, {"second.weight", {64}, 8, 32}, {"third", {2, 2, 2, 2}, 1, 128}};
  sketch.data_bytes = 160;
  return sketch;
}

}  // namespace carat::test
