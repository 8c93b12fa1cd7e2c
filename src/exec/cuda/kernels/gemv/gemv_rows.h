#pragma once

#include <cstdint>

namespace carat::cuda {

inline constexpr uint32_t kGemvRows = 8;  // most rows of activations of one launch

}  // namespace carat::cuda
