#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace carat::model {

// "blk.3.ffn_down.weight" is the tensor "ffn_down.weight" of layer 3.
struct BlockTensorName {
  uint32_t layer;
  std::string_view kind;
};

// nullopt for a tensor that belongs to no layer.
inline std::optional<BlockTensorName> split_block_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint32_t layer = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  if (error != std::errc() || rest == end || *rest != '.') return std::nullopt;
  return BlockTensorName{layer, std::string_view(rest + 1, end)};
}

}  // namespace carat::model
