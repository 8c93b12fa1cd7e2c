#include "exec/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace carat::exec::cpu {

Experts::Experts(const model::Config& config, const ExecutorOptions& options, const Workers& workers, bool int16)
    : config_(&config),
      workers_(workers),
      int16_(int16),
      probabilities_(size_t{options.chunk} * config.experts),
      chosen_(size_t{options.chunk} * config.experts_used),
      weights_(size_t{options.chunk} * config.experts_used),
      entry_(size_t{options.chunk} * config.experts_used),
      source_row_(size_t{options.chunk} * config.experts_used),
      next_entry_(config.experts),
      inputs_(*workers.kernels, options.chunk * config.experts_used, std::max(config.d, config.F_expert)),
      gate_(size_t{options.chunk} * config.experts_used * config.F_expert),
      up_(size_t{options.chunk} * config.experts_used * config.F_expert),
      down_(size_t{options.chunk} * config.experts_used * config.d) {
  const size_t entries = size_t{options.chunk} * config.experts_used;
  groups_.reserve(config.experts);
  slices_.reserve(config.experts);
  products_.reserve(size_t{2} * config.experts);
  tiles_.reserve(entries);
}

void Experts::run(const model::LayerWeights& weights, const LayerKernels& kernels, const float* h, uint32_t rows,
                  float* normed, ActivationBuffer& inputs, float* out) {
  const uint32_t d = config_->d;
  const KernelTable& table = *workers_.kernels;
  inputs.set_source(normed, d, rows, d, int16_);
  workers_.prepare_rows(inputs, kernels.router.quantised(), [&](uint32_t row, unsigned) {
    table.rms_norm(h + size_t{row} * d, kernels.router_scale.data(), config_->eps, d, normed + size_t{row} * d);
  });
  workers_.multiplier->run({&kernels.router, &inputs.view(), probabilities_.data(), config_->experts});
  route(weights, rows);
  group_rows(rows);

  workers_.for_each_row(rows, [&](uint32_t row, unsigned) {
    table.rms_norm(h + size_t{row} * d, weights.pre_ffw_norm_2.data(), config_->eps, d, normed + size_t{row} * d);
  });
  inputs_.set_source(normed, d, rows * config_->experts_used, d, int16_, source_row_.data());
  multiply_gate_and_up(kernels);
  multiply_down(kernels);

  workers_.for_each_row(rows, [&](uint32_t row, unsigned) {
    float* sum = out + size_t{row} * d;
    std::fill_n(sum, d, 0.0f);
    for (uint32_t k = 0; k < config_->experts_used; ++k) {
      const size_t at = size_t{row} * config_->experts_used + k;
      table.add_scaled(down_.data() + size_t{entry_.data()[at]} * d, weights_.data()[at], d, sum);
    }
  });
}

void Experts::route(const model::LayerWeights& weights, uint32_t rows) {
  workers_.for_each_row(rows, [&](uint32_t row, unsigned) {
    float* probability = probabilities_.data() + size_t{row} * config_->experts;
    workers_.kernels->softmax(probability, config_->experts);
    choose(row, weights);
  });
}

void Experts::choose(uint32_t row, const model::LayerWeights& weights) {
  const uint32_t used = config_->experts_used;
  const float* probability = probabilities_.data() + size_t{row} * config_->experts;
  uint32_t* chosen = chosen_.data() + size_t{row} * used;
  float* share = weights_.data() + size_t{row} * used;
  // One value that is not finite makes the sum of all, and with it each probability, NaN, which has no order. The row
  // goes to the first experts with NaN for weights, so that its logits show what happened.
  if (!std::isfinite(probability[0])) {
    std::iota(chosen, chosen + used, 0u);
    std::fill(share, share + used, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  float total = 0.0f;
  for (uint32_t k = 0; k < used; ++k) {
    uint32_t best = config_->experts;
    for (uint32_t expert = 0; expert < config_->experts; ++expert) {
      if (std::find(chosen, chosen + k, expert) != chosen + k) continue;
      if (best == config_->experts || probability[expert] > probability[best]) best = expert;
    }
    chosen[k] = best;
    total += probability[best];
  }
  for (uint32_t k = 0; k < used; ++k)
    share[k] = probability[chosen[k]] / total * weights.ffn_down_exps_scale[chosen[k]];
}

void Experts::group_rows(uint32_t rows) {
  const uint32_t entries = rows * config_->experts_used;
  std::fill(next_entry_.begin(), next_entry_.end(), 0u);
  for (uint32_t at = 0; at < entries; ++at) ++next_entry_[chosen_.data()[at]];
  groups_.clear();
  tiles_.clear();
  uint32_t first = 0;
  for (uint32_t expert = 0; expert < config_->experts; ++expert) {
    const uint32_t count = next_entry_[expert];
    next_entry_[expert] = first;
    if (count == 0) continue;
    groups_.push_back({expert, first, count});
    const RowTiles tiles = {count, workers_.kernels->tile_rows};
    for (uint32_t t = 0; t < tiles.count(); ++t) {
      const RowTiles::Tile tile = tiles.tile(t);
      tiles_.push_back({first + tile.first, tile.width});
    }
    first += count;
  }
  for (uint32_t at = 0; at < entries; ++at) {
    const uint32_t entry = next_entry_[chosen_.data()[at]]++;
    entry_.data()[at] = entry;
    source_row_.data()[entry] = at / config_->experts_used;
  }
}

void Experts::quantise_groups(bool needed) {
  if (needed) {
    for_each(*workers_.pool, tiles_.size(), 1, [&](size_t item, unsigned) { inputs_.quantise(tiles_[item]); });
  }
  slices_.clear();
  for (const Group& group : groups_) slices_.push_back(inputs_.slice(group.first, group.count));
}

void Experts::multiply_gate_and_up(const LayerKernels& kernels) {
  quantise_groups(kernels.expert_gate[0].quantised() || kernels.expert_up[0].quantised());
  products_.clear();
  const uint32_t width = config_->F_expert;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t offset = size_t{groups_[g].first} * width;
    products_.push_back({&kernels.expert_gate[groups_[g].expert], &slices_[g], gate_.data() + offset, width});
    products_.push_back({&kernels.expert_up[groups_[g].expert], &slices_[g], up_.data() + offset, width});
  }
  workers_.multiplier->run(products_);
}

void Experts::multiply_down(const LayerKernels& kernels) {
  const uint32_t width = config_->F_expert;
  const uint32_t entries = groups_.back().first + groups_.back().count;
  workers_.for_each_row(entries, [&](uint32_t entry, unsigned) {
    float* gate = gate_.data() + size_t{entry} * width;
    workers_.kernels->gelu_multiply(gate, up_.data() + size_t{entry} * width, width, gate);
  });
  inputs_.set_source(gate_.data(), width, entries, width, int16_);
  quantise_groups(kernels.expert_down[0].quantised());
  products_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t offset = size_t{groups_[g].first} * config_->d;
    products_.push_back({&kernels.expert_down[groups_[g].expert], &slices_[g], down_.data() + offset, config_->d});
  }
  workers_.multiplier->run(products_);
}

}  // namespace carat::exec::cpu
