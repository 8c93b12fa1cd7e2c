#include "quant/codebook_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "quant/codebooks.h"

namespace carat::quant {

CodebookSearch::CodebookSearch(std::span<const uint16_t> entries, std::span<const uint8_t> values, int elements,
                               int bits)
    : elements_(elements), entry_values_(entries.size() * kMostElements) {
  for (const uint8_t value : values) {
    if (value != 0) levels_.push_back(value);  // a zero is no level
  }
  const unsigned mask = (1u << bits) - 1;
  for (size_t entry = 0; entry < entries.size(); ++entry) {
    for (int i = 0; i < elements; ++i) {
      entry_values_[entry * kMostElements + static_cast<size_t>(i)] = values[(entries[entry] >> (bits * i)) & mask];
    }
  }
  size_t patterns = 1;
  for (int i = 0; i < elements; ++i) patterns *= levels_.size();
  neighbours_.resize(patterns * kNeighbours);
  std::vector<std::pair<float, uint16_t>> distances(entries.size());
  for (size_t pattern = 0; pattern < patterns; ++pattern) {
    std::array<float, kMostElements> target{};
    size_t rest = pattern;
    for (int i = 0; i < elements; ++i, rest /= levels_.size()) {
      target[static_cast<size_t>(i)] = levels_[rest % levels_.size()];
    }
    for (size_t entry = 0; entry < entries.size(); ++entry) {
      float distance = 0.0f;
      for (size_t i = 0; i < kMostElements; ++i) {
        const float difference = target[i] - entry_values_[entry * kMostElements + i];
        distance += difference * difference;
      }
      distances[entry] = {distance, static_cast<uint16_t>(entry)};
    }
    std::partial_sort(distances.begin(), distances.begin() + kNeighbours, distances.end());
    for (size_t n = 0; n < kNeighbours; ++n) neighbours_[pattern * kNeighbours + n] = distances[n].second;
  }
}

template <int kElements>
uint16_t CodebookSearch::nearest_of(const float* target, const float* weight, float inverse_scale) const {
  std::array<float, kElements> scaled;
  size_t pattern = 0, place = 1;
  for (size_t i = 0; i < kElements; ++i) {
    scaled[i] = target[i] * inverse_scale;
    size_t level = 0;
    while (level + 1 < levels_.size() && 2.0f * scaled[i] > levels_[level] + levels_[level + 1]) ++level;
    pattern += level * place;
    place *= levels_.size();
  }
  float least = std::numeric_limits<float>::infinity();
  uint16_t best = neighbours_[pattern * kNeighbours];
  for (size_t n = 0; n < kNeighbours; ++n) {
    const uint16_t entry = neighbours_[pattern * kNeighbours + n];
    const float* candidate = values(entry);
    float error = 0.0f;
    for (size_t i = 0; i < kElements; ++i) {
      const float difference = scaled[i] - candidate[i];
      error += weight[i] * difference * difference;
    }
    if (error >= least) continue;
    least = error;
    best = entry;
  }
  return best;
}

uint16_t CodebookSearch::nearest(const float* target, const float* weight, float inverse_scale) const {
  return elements_ == 8 ? nearest_of<8>(target, weight, inverse_scale) : nearest_of<4>(target, weight, inverse_scale);
}

// Made when first needed: a quarter of a second for the largest.
const CodebookSearch& iq2_xxs_search() {
  static const CodebookSearch search(kIq2XxsCodebook, kIq2Values, 8, 2);
  return search;
}
const CodebookSearch& iq2_xs_search() {
  static const CodebookSearch search(kIq2XsCodebook, kIq2Values, 8, 2);
  return search;
}
const CodebookSearch& iq2_s_search() {
  static const CodebookSearch search(kIq2SCodebook, kIq2Values, 8, 2);
  return search;
}
const CodebookSearch& iq3_xxs_search() {
  static const CodebookSearch search(kIq3XxsCodebook, kIq3XxsValues, 4, 3);
  return search;
}
const CodebookSearch& iq3_s_search() {
  static const CodebookSearch search(kIq3SCodebook, kIq3SValues, 4, 3);
  return search;
}

}  // namespace carat::quant
