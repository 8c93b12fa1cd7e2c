#pragma once

// The search for the best entries of a codebook: what the quantisers of IQ2 and IQ3 share. A group's elements are taken
// without their signs; rounded one by one to the nearest of the codebook's values they make a pattern, and for each
// pattern there is a list of the entries next to it, of which the one with the least weighted error is taken.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace carat::quant {

class CodebookSearch {
 public:
  // kElements values an entry, of `values`; entries as in codebooks.h, `bits` an element.
  CodebookSearch(std::span<const uint16_t> entries, std::span<const uint8_t> values, int elements, int bits);

  int elements() const { return elements_; }
  // elements() values of an entry, before sign and scale.
  const float* values(uint16_t entry) const { return entry_values_.data() + size_t{entry} * kMostElements; }
  // The entry with the least weighted squared distance from target * inverse_scale among those next to it.
  uint16_t nearest(const float* target, const float* weight, float inverse_scale) const;

  float largest_value() const { return levels_.back(); }

 private:
  static constexpr size_t kMostElements = 8;
  static constexpr size_t kNeighbours = 24;

  template <int kElements>
  uint16_t nearest_of(const float* target, const float* weight, float inverse_scale) const;

  int elements_;
  std::vector<float> levels_;         // ascending
  std::vector<float> entry_values_;   // [entries][kMostElements]
  std::vector<uint16_t> neighbours_;  // [patterns][kNeighbours], the nearest first
};

const CodebookSearch& iq2_xxs_search();
const CodebookSearch& iq2_xs_search();
const CodebookSearch& iq2_s_search();
const CodebookSearch& iq3_xxs_search();
const CodebookSearch& iq3_s_search();

}  // namespace carat::quant
