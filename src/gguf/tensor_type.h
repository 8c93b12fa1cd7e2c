#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace carat::gguf {

// How a tensor type of the container packs elements: `block` elements share `bytes` bytes along the first dimension.
// This is all the container needs to know; what the bytes mean is quant/'s business.
struct TensorTypeInfo {
  uint32_t id;
  std::string_view name;
  uint32_t block;
  uint32_t bytes;
};

// nullptr for an id no known writer uses.
const TensorTypeInfo* find_tensor_type(uint32_t id);

// Bytes of a tensor of shape `ne` (ne[0] runs fastest). Throws kBadFile for a shape no tensor can have: no or too many
// dimensions, an empty one, a row that is no multiple of the block, 2^63 elements or more. The caller names the tensor.
uint64_t tensor_bytes(const TensorTypeInfo& type, std::span<const uint64_t> ne);

}  // namespace carat::gguf
