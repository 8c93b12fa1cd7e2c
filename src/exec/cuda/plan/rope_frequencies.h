#pragma once

#include <vector>

#include "model/model.h"

namespace carat::cuda {

// Rotation frequencies of a kind of layers, theta^(-2 j / hd) / divisor of the pairs that turn; trailing pairs whose
// divisor makes the angle vanish are left out.
std::vector<double> inverse_frequencies(const model::Model& model, bool sliding);

}  // namespace carat::cuda
