#include "exec/cuda/plan/rope_frequencies.h"

#include <cmath>

namespace carat::cuda {

std::vector<double> inverse_frequencies(const model::Model& model, bool sliding) {
  const model::Config& config = model.config();
  uint32_t hd = 0;
  for (const model::Layer& layer : config.layers) {
    if (layer.sliding == sliding) hd = layer.hd;
  }
  const double base = sliding ? config.rope_base_sliding : config.rope_base_global;
  std::vector<double> frequencies;
  for (uint32_t j = 0; j < hd / 2; ++j) {
    const double divisor = sliding ? 1.0 : static_cast<double>(model.weights().rope_freqs[j]);
    frequencies.push_back(std::pow(base, -2.0 * j / hd) / divisor);
  }
  while (!frequencies.empty() && frequencies.back() * model::kMaxPositions < 1e-9) frequencies.pop_back();
  return frequencies;
}

}  // namespace carat::cuda
