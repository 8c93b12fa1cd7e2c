#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace carat::gguf {

// What the name PREFIX-00002-of-00003.gguf says.
struct SplitName {
  std::string prefix;
  uint32_t part = 0;  // from 1
  uint32_t count = 0;

  std::string path_of(uint32_t number) const;
};

// nullopt for a path that is not of this form. The numbers are as they stand, not checked against each other.
std::optional<SplitName> parse_split_name(std::string_view path);

}  // namespace carat::gguf
