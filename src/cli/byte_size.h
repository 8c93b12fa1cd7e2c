#pragma once

#include <cstdint>
#include <string>

#include "base/byte_size.h"

namespace carat::cli {

// "1,863,057,408"
inline std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

}  // namespace carat::cli
