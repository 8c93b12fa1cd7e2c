#pragma once

#include <cstdint>
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

}  // namespace carat::gguf
