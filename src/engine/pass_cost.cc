#include "engine/pass_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace carat::engine {

namespace {

// Of the logarithm of a ratio between time and estimate, how much is made up for at once.
constexpr double kFasterGain = 0.8;
constexpr double kSlowerGain = 0.5;
// Ratios beyond these count as these.
constexpr double kLeastRatio = 1.0 / 16.0;
constexpr double kMostRatio = 4.0;
// The share of a pass that the rows of prompts may take in any case.
constexpr double kPromptShare = 0.2;
// Before deep passes were measured: so many positions to attend to take as long as the rest of a row.
constexpr double kPositionsPerRow = 32768.0;

}  // namespace

PassCost::Terms PassCost::amounts(const PassLoad& load) {
  Terms amount{};
  amount[load.prompt_rows == 0 ? kDecodePass : kPromptPass] = 1.0;
  amount[kDecodeRow] = load.decode_rows;
  amount[kDecodeDepth] = static_cast<double>(load.decode_depth);
  amount[kPromptRow] = load.prompt_rows;
  amount[kPromptDepth] = static_cast<double>(load.prompt_depth);
  return amount;
}

double PassCost::seconds(const PassLoad& load) const {
  const Terms amount = amounts(load);
  double sum = 0.0;
  for (size_t i = 0; i < kTerms; ++i) sum += weight_[i] * amount[i];
  return sum;
}

// Divides what the terms known so far do not explain among the pass itself and its rows, as far as they are new.
void PassCost::begin(const Terms& amount, double seconds) {
  constexpr std::array kBegun = {kDecodePass, kPromptPass, kDecodeRow, kPromptRow};
  double explained = 0.0;
  int begun = 0;
  for (const Term term : kBegun) {
    explained += weight_[term] * amount[term];
    begun += weight_[term] == 0.0 && amount[term] > 0.0 ? 1 : 0;
  }
  if (begun == 0) return;
  const double share = std::max(seconds - explained, 0.1 * seconds) / begun;
  for (const Term term : kBegun) {
    if (weight_[term] == 0.0 && amount[term] > 0.0) weight_[term] = share / amount[term];
  }
  for (const auto& [depth, row] : {std::pair{kDecodeDepth, kDecodeRow}, std::pair{kPromptDepth, kPromptRow}}) {
    if (weight_[depth] == 0.0) weight_[depth] = weight_[row] / kPositionsPerRow;
  }
}

void PassCost::record(const PassLoad& load, double seconds, bool was_waited_for) {
  if (!(seconds > 0.0)) return;
  const Terms amount = amounts(load);
  begin(amount, seconds);
  const double estimate = this->seconds(load);
  double ratio = std::clamp(seconds / estimate, kLeastRatio, kMostRatio);
  if (ratio > 1.0) {
    if (!was_waited_for) return;
    const double before = std::exchange(last_ratio_, ratio);
    ratio = std::clamp(before, 1.0, ratio);
  } else {
    last_ratio_ = ratio;
  }
  Terms share{};
  double squares = 0.0;
  for (size_t i = 0; i < kTerms; ++i) {
    share[i] = weight_[i] * amount[i] / estimate;
    squares += share[i] * share[i];
  }
  const double gain = ratio < 1.0 ? kFasterGain : kSlowerGain;
  for (size_t i = 0; i < kTerms; ++i) weight_[i] *= std::pow(ratio, gain * share[i] / squares);
}

uint32_t PassCost::prompt_rows(const PassLoad& load, uint32_t first, uint32_t most, double target) const {
  if (most == 0) return 0;
  const auto with = [&](uint32_t rows) {
    PassLoad sum = load;
    sum.add_prompt_rows(first, rows);
    return seconds(sum);
  };
  PassLoad decode = load;
  decode.prompt_rows = 0;
  decode.prompt_depth = 0;
  const double without = seconds(decode) - weight_[kDecodePass] + weight_[kPromptPass];
  const double limit = std::max(target, without / (1.0 - kPromptShare));
  uint32_t fits = load.prompt_rows == 0 ? 1 : 0, too_many = most + 1;
  while (too_many - fits > 1) {
    const uint32_t middle = fits + (too_many - fits) / 2;
    (with(middle) <= limit ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace carat::engine
