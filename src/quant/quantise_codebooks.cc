// Quantisation to IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: value = sign * d * (2 scale + 1) * unit * codebook value,
// with a scale of four bits for each sub-block and one half d for all. Each sub-block first looks for the scale that
// suits its own codes best, which fixes d; then it takes the stored scale with the least error of what the block will
// really hold; then d is fitted once more to all codes and the choice is repeated.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/block_search.h"
#include "quant/blocks.h"
#include "quant/codebook_search.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

// How a format divides a block.
struct Shape {
  int sub_block;    // elements with one scale
  float unit;       // d times this times an odd number is what codebook values are multiplied by
  bool even_signs;  // the number of negative elements of eight is even
};

constexpr int kLargestStored = 15;  // 2 * 15 + 1 = 31

// Elements without their signs. Where signs must be even in number and are not, the element whose sign costs least is
// stored with the other one, so its target is negative.
struct Targets {
  std::array<float, kSuperBlock> x;
  std::array<float, kSuperBlock> weight;
  std::array<uint8_t, kSuperBlock / 8> signs;
  float largest = 0.0f;
};

Targets load_targets(const float* values, const float* importance, const Shape& shape, float limit) {
  const Weights weights(importance, kSuperBlock);
  const auto samples = load_samples<kSuperBlock>(values, weights, 0, limit);
  Targets targets;
  std::memcpy(targets.x.data(), samples.values.data(), sizeof targets.x);
  std::memcpy(targets.weight.data(), samples.weights.data(), sizeof targets.weight);
  for (size_t g = 0; g < kSuperBlock / 8; ++g) {
    unsigned signs = 0;
    size_t cheapest = 8 * g;
    float least = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < 8; ++i) {
      float& x = targets.x[8 * g + i];
      if (x < 0.0f) {
        signs |= 1u << i;
        x = -x;
      }
      targets.largest = std::max(targets.largest, x);
      const float cost = targets.weight[8 * g + i] * x * x;
      if (cost >= least) continue;
      least = cost;
      cheapest = 8 * g + i;
    }
    if (shape.even_signs && std::popcount(signs) % 2 != 0) {
      signs ^= 1u << (cheapest % 8);
      targets.x[cheapest] = -targets.x[cheapest];
    }
    targets.signs[g] = static_cast<uint8_t>(signs);
  }
  return targets;
}

// What one sub-block stores, and the sums that follow from it.
struct SubChoice {
  std::array<uint16_t, 8> codes = {};
  int stored = 0;
  float xv = 0.0f, vv = 0.0f;  // weighted sums with the codebook's values v
  float error = std::numeric_limits<float>::infinity();
};

class BlockSearch {
 public:
  BlockSearch(const CodebookSearch& codebook, const Shape& shape, const Targets& targets)
      : codebook_(codebook), shape_(shape), targets_(targets), groups_(shape.sub_block / codebook.elements()) {}

  int sub_blocks() const { return kSuperBlock / shape_.sub_block; }
  float d() const { return d_; }
  const SubChoice& choice(int k) const { return choices_[static_cast<size_t>(k)]; }

  void run() {
    if (targets_.largest < kNegligible) return;
    std::array<float, 16> ideal{};
    float largest = 0.0f;
    for (int k = 0; k < sub_blocks(); ++k) {
      ideal[static_cast<size_t>(k)] = ideal_scale(k);
      largest = std::max(largest, ideal[static_cast<size_t>(k)]);
    }
    float least = std::numeric_limits<float>::infinity();
    for (const float aim : {31.0f, 27.0f}) {  // where the largest scale comes to lie
      float d = half_reaching(largest / (shape_.unit * aim));
      std::array<SubChoice, 16> found{};
      for (int k = 0; k < sub_blocks(); ++k) {
        const float odd = ideal[static_cast<size_t>(k)] * inverse_or_zero(d * shape_.unit);
        found[static_cast<size_t>(k)].stored = std::clamp(static_cast<int>(std::nearbyint((odd - 1.0f) / 2.0f)), 0, 15);
      }
      for (int round = 0; round < 3; ++round) {
        float error = 0.0f;
        for (int k = 0; k < sub_blocks(); ++k) error += settle(found[static_cast<size_t>(k)], k, d, round == 0 ? 2 : 1);
        if (error < least) {
          least = error;
          d_ = d;
          choices_ = found;
        }
        const float next = refitted(found);
        if (next == d || !(next > 0.0f)) break;
        d = next;
      }
    }
  }

 private:
  const float* x(int k) const { return targets_.x.data() + k * shape_.sub_block; }
  const float* weight(int k) const { return targets_.weight.data() + k * shape_.sub_block; }

  // Codes for a scale, and their sums.
  SubChoice codes_for(int k, float scale) const {
    SubChoice choice;
    const float inverse = inverse_or_zero(scale);
    const int n = codebook_.elements();
    float error = 0.0f;
    for (int g = 0; g < groups_; ++g) {
      const uint16_t code = codebook_.nearest(x(k) + n * g, weight(k) + n * g, inverse);
      const float* values = codebook_.values(code);
      choice.codes[static_cast<size_t>(g)] = code;
      for (int i = 0; i < n; ++i) {
        const float w = weight(k)[n * g + i], t = x(k)[n * g + i];
        choice.xv += w * t * values[i];
        choice.vv += w * values[i] * values[i];
        error += w * (t - scale * values[i]) * (t - scale * values[i]);
      }
    }
    choice.error = error;
    return choice;
  }

  // The scale whose codes explain most of the sub-block: its largest element at the codebook's largest value, or the
  // element clipped, or at less.
  float ideal_scale(int k) const {
    float peak = 0.0f;
    for (int i = 0; i < shape_.sub_block; ++i) peak = std::max(peak, std::fabs(x(k)[i]));
    if (peak < kNegligible) return 0.0f;
    float best = 0.0f, best_explained = 0.0f;
    for (int step = 0; step < 12; ++step) {
      const float part = 0.60f + 0.06f * static_cast<float>(step);
      const SubChoice found = codes_for(k, peak / (codebook_.largest_value() * part) * 0.8f);
      const float explained = found.xv > 0.0f ? found.xv * found.xv / found.vv : 0.0f;
      if (explained <= best_explained) continue;
      best_explained = explained;
      best = found.xv / found.vv;
    }
    return best;
  }

  // The stored scale within `reach` with the least error under d.
  float settle(SubChoice& choice, int k, float d, int reach) const {
    const int middle = choice.stored;
    SubChoice best;
    for (int stored = std::max(0, middle - reach); stored <= std::min(kLargestStored, middle + reach); ++stored) {
      SubChoice found = codes_for(k, d * shape_.unit * static_cast<float>(2 * stored + 1));
      found.stored = stored;
      if (found.error < best.error) best = found;
    }
    choice = best;
    return best.error;
  }

  // d by least squares for the codes and stored scales.
  float refitted(const std::array<SubChoice, 16>& choices) const {
    double xu = 0, uu = 0;
    for (int k = 0; k < sub_blocks(); ++k) {
      const SubChoice& choice = choices[static_cast<size_t>(k)];
      const double scale = shape_.unit * static_cast<double>(2 * choice.stored + 1);
      xu += scale * choice.xv;
      uu += scale * scale * choice.vv;
    }
    return uu > 0 ? rounded_to_half(static_cast<float>(xu / uu)) : 0.0f;
  }

  const CodebookSearch& codebook_;
  const Shape& shape_;
  const Targets& targets_;
  int groups_;  // of a sub-block
  float d_ = 0.0f;
  std::array<SubChoice, 16> choices_ = {};
};

// Calls pack(block, search, targets) for each block.
template <typename Block, typename Pack>
void encode_blocks(const float* values, std::byte* blocks, size_t count, const float* importance,
                   const CodebookSearch& codebook, const Shape& shape, Pack pack) {
  const float limit = kLargestHalf * shape.unit * 31.0f * codebook.largest_value();
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const float* block_importance = importance == nullptr ? nullptr : importance + i * kSuperBlock;
    const Targets targets = load_targets(values + i * kSuperBlock, block_importance, shape, limit);
    BlockSearch search(codebook, shape, targets);
    search.run();
    Block block = {};
    block.d = nearest_half(search.d());
    pack(block, search, targets);
    store_block(blocks + i * sizeof(block), block);
  }
}

constexpr Shape kIq2Xxs = {32, 0.125f, true};
constexpr Shape kIq2Xs = {16, 0.125f, true};
constexpr Shape kIq2S = {16, 0.125f, false};
constexpr Shape kIq3Xxs = {32, 0.25f, true};
constexpr Shape kIq3S = {32, 1.0f, false};

// Four times seven signs and the scale.
uint32_t signs_and_scale(const Targets& targets, int sub_block, int stored) {
  uint32_t word = static_cast<uint32_t>(stored) << 28;
  for (int g = 0; g < 4; ++g) {
    word |= static_cast<uint32_t>(targets.signs[static_cast<size_t>(4 * sub_block + g)] & 127) << (7 * g);
  }
  return word;
}

}  // namespace

void quantise_iq2_xxs(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockIQ2_XXS>(values, blocks, count, importance, iq2_xxs_search(), kIq2Xxs,
                              [](BlockIQ2_XXS& block, const BlockSearch& search, const Targets& targets) {
                                for (int k = 0; k < 8; ++k) {
                                  const SubChoice& choice = search.choice(k);
                                  uint8_t* quants = block.quants + 8 * k;
                                  for (size_t g = 0; g < 4; ++g) quants[g] = static_cast<uint8_t>(choice.codes[g]);
                                  const uint32_t word = signs_and_scale(targets, k, choice.stored);
                                  std::memcpy(quants + 4, &word, sizeof word);
                                }
                              });
}

void quantise_iq2_xs(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockIQ2_XS>(
      values, blocks, count, importance, iq2_xs_search(), kIq2Xs,
      [](BlockIQ2_XS& block, const BlockSearch& search, const Targets& targets) {
        for (int k = 0; k < 16; ++k) {
          const SubChoice& choice = search.choice(k);
          block.scales[k / 2] = static_cast<uint8_t>(block.scales[k / 2] | choice.stored << (4 * (k % 2)));
          for (int g = 0; g < 2; ++g) {
            const int signs = targets.signs[static_cast<size_t>(2 * k + g)] & 127;
            block.quants[2 * k + g] = static_cast<uint16_t>(choice.codes[static_cast<size_t>(g)] | signs << 9);
          }
        }
      });
}

void quantise_iq2_s(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockIQ2_S>(
      values, blocks, count, importance, iq2_s_search(), kIq2S,
      [](BlockIQ2_S& block, const BlockSearch& search, const Targets& targets) {
        std::memcpy(block.signs, targets.signs.data(), sizeof block.signs);
        for (int k = 0; k < 16; ++k) {
          const SubChoice& choice = search.choice(k);
          block.scales[k / 2] = static_cast<uint8_t>(block.scales[k / 2] | choice.stored << (4 * (k % 2)));
          for (int n = 2 * k; n < 2 * k + 2; ++n) {
            const unsigned code = choice.codes[static_cast<size_t>(n % 2)];
            block.quants[n] = static_cast<uint8_t>(code);
            block.high[n / 4] = static_cast<uint8_t>(block.high[n / 4] | (code >> 8) << (2 * (n % 4)));
          }
        }
      });
}

void quantise_iq3_xxs(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockIQ3_XXS>(values, blocks, count, importance, iq3_xxs_search(), kIq3Xxs,
                              [](BlockIQ3_XXS& block, const BlockSearch& search, const Targets& targets) {
                                for (int k = 0; k < 8; ++k) {
                                  const SubChoice& choice = search.choice(k);
                                  for (size_t g = 0; g < 8; ++g) {
                                    block.quants[8 * static_cast<size_t>(k) + g] =
                                        static_cast<uint8_t>(choice.codes[g]);
                                  }
                                  const uint32_t word = signs_and_scale(targets, k, choice.stored);
                                  std::memcpy(block.signs + 4 * k, &word, sizeof word);
                                }
                              });
}

void quantise_iq3_s(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockIQ3_S>(values, blocks, count, importance, iq3_s_search(), kIq3S,
                            [](BlockIQ3_S& block, const BlockSearch& search, const Targets& targets) {
                              std::memcpy(block.signs, targets.signs.data(), sizeof block.signs);
                              for (int k = 0; k < 8; ++k) {
                                const SubChoice& choice = search.choice(k);
                                block.scales[k / 2] =
                                    static_cast<uint8_t>(block.scales[k / 2] | choice.stored << (4 * (k % 2)));
                                for (int g = 0; g < 8; ++g) {
                                  const unsigned code = choice.codes[static_cast<size_t>(g)];
                                  block.quants[8 * k + g] = static_cast<uint8_t>(code);
                                  block.high[k] = static_cast<uint8_t>(block.high[k] | (code >> 8) << g);
                                }
                              }
                            });
}

}  // namespace carat::quant
