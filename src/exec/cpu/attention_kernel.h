#pragma once

// Attention of a few queries that share a key/value head over a span of its cache, with the running-maximum softmax.
//
// Keys and values are taken kKeyBlock at a time, converted to fp32 once and used by all queries. Blocks begin at
// multiples of kKeyBlock and a block none of whose keys a query sees leaves that query untouched, so its result does
// not depend on the other queries. Scores: lanes along hd, added in a fixed tree. Outputs: one chain over the keys in
// order. Included after vector_math.h.

#include "exec/cpu/simd/vector_math.h"
#include "quant/blocks.h"

namespace carat::exec::cpu {
namespace {

static_assert(kKeyBlock % kLanes == 0 && kKeyBlock % 4 == 0);

// `count` blocks of Q8_0 as fp32.
inline void load_q8_0(const quant::BlockQ8_0* blocks, uint32_t count, float* out) {
  for (uint32_t first = 0; first < count; first += kLanes) {
    uint16_t halves[kLanes] = {};
    float scales[kLanes];
    const uint32_t here = count - first < kLanes ? count - first : uint32_t{kLanes};
    for (uint32_t i = 0; i < here; ++i) halves[i] = blocks[first + i].d;
    store(scales, load_halves(halves));
    for (uint32_t i = 0; i < here; ++i) {
      const quant::BlockQ8_0& block = blocks[first + i];
      float* to = out + size_t{first + i} * quant::kBlock;
      for (int e = 0; e < quant::kBlock; ++e) to[e] = scales[i] * static_cast<float>(block.quants[e]);
    }
  }
}

// Copies the vectors of key positions [begin, end) into block[position % kKeyBlock]; the others become zero.
inline void load_block(const AttentionSpan& span, const void* plane, uint32_t begin, uint32_t end, float* block) {
  const uint32_t hd = span.hd;
  const uint32_t start = begin / kKeyBlock * kKeyBlock;
  const KvPagesView& pages = span.pages;
  const uint32_t page = pages.table[start / pages.positions % pages.entries];
  const void* const piece = static_cast<const char*>(plane) + page * pages.page_bytes;
  for (uint32_t i = 0; i < kKeyBlock; ++i) {
    float* out = block + size_t{i} * hd;
    if (start + i < begin || start + i >= end) {
      for (uint32_t j = 0; j < hd; ++j) out[j] = 0.0f;
      continue;
    }
    const size_t row = start % pages.positions + i;
    if (span.format == quant::Format::kQ8_0) {
      const uint32_t blocks = hd / quant::kBlock;
      load_q8_0(static_cast<const quant::BlockQ8_0*>(piece) + row * blocks, blocks, out);
    } else if (span.format == quant::Format::kF16) {
      const uint16_t* in = static_cast<const uint16_t*>(piece) + row * hd;
      uint32_t j = 0;
      for (; hd - j >= kLanes; j += kLanes) store(out + j, load_halves(in + j));
      if (j < hd) {
        uint16_t padded[kLanes] = {};
        float values[kLanes];
        __builtin_memcpy(padded, in + j, (hd - j) * sizeof(uint16_t));
        store(values, load_halves(padded));
        __builtin_memcpy(out + j, values, (hd - j) * sizeof(float));
      }
    } else {
      __builtin_memcpy(out, static_cast<const float*>(piece) + row * hd, hd * sizeof(float));
    }
  }
}

// scores[r][k] = queries[r] . keys[k] for kRows queries and four keys.
template <int kRows>
inline void score_tile(const float* const* queries, const float* keys, uint32_t hd, float* scores) {
  Floats lanes[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < 4; ++k) lanes[r][k] = broadcast(0.0f);
  }
  uint32_t j = 0;
  for (; hd - j >= kLanes; j += kLanes) {
    Floats key[4];
    for (int k = 0; k < 4; ++k) key[k] = load(keys + static_cast<size_t>(k) * hd + j);
    for (int r = 0; r < kRows; ++r) {
      const Floats query = load(queries[r] + j);
      for (int k = 0; k < 4; ++k) lanes[r][k] = multiply_add(query, key[k], lanes[r][k]);
    }
  }
  if (j < hd) {
    for (int k = 0; k < 4; ++k) {
      float padded_key[kLanes] = {};
      __builtin_memcpy(padded_key, keys + static_cast<size_t>(k) * hd + j, (hd - j) * sizeof(float));
      for (int r = 0; r < kRows; ++r) {
        float padded[kLanes] = {};
        __builtin_memcpy(padded, queries[r] + j, (hd - j) * sizeof(float));
        lanes[r][k] = multiply_add(load(padded), load(padded_key), lanes[r][k]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    reduce_add4(lanes[r][0], lanes[r][1], lanes[r][2], lanes[r][3], scores + static_cast<size_t>(r) * kKeyBlock);
  }
}

// Keys [first, last) of a block a query sees, as offsets into the block.
struct Visible {
  uint32_t first;
  uint32_t last;
};

inline Visible visible_keys(const AttentionSpan& span, uint32_t query, uint32_t begin, uint32_t end) {
  const uint32_t start = begin / kKeyBlock * kKeyBlock;
  const uint32_t position = span.positions[query];
  const uint32_t window_begin = position >= span.window ? position - span.window + 1 : 0;
  const uint32_t first = window_begin > begin ? window_begin : begin;
  const uint32_t last = position + 1 < end ? position + 1 : end;
  if (first >= last) return {0, 0};
  return {first - start, last - start};
}

// Turns scores into weights exp(score - peak), 0 for hidden keys, and rescales what was summed before.
inline void update_softmax(const AttentionSpan& span, uint32_t query, Visible visible, float* scores) {
  const float hidden = -__builtin_inff();
  for (uint32_t k = 0; k < visible.first; ++k) scores[k] = hidden;
  for (uint32_t k = visible.last; k < kKeyBlock; ++k) scores[k] = hidden;
  Floats largest_score = load(scores);
  for (uint32_t k = kLanes; k < kKeyBlock; k += kLanes) largest_score = largest(largest_score, load(scores + k));
  const float old_peak = span.peaks[query];
  const float block_peak = reduce_max(largest_score);
  const float peak = block_peak > old_peak ? block_peak : old_peak;

  Floats total = broadcast(0.0f);
  for (uint32_t k = 0; k < kKeyBlock; k += kLanes) {
    const Floats weight = exponential(subtract(load(scores + k), broadcast(peak)));
    store(scores + k, weight);
    total = add(total, weight);
  }
  const float block_total = reduce_add(total);
  if (peak == old_peak) {
    span.totals[query] += block_total;
    return;
  }
  float lanes[kLanes];
  store(lanes, exponential(broadcast(old_peak - peak)));  // 0 for the first block: old_peak is -infinity
  span.peaks[query] = peak;
  span.totals[query] = span.totals[query] * lanes[0] + block_total;
  scale(span.outputs + size_t{query} * span.hd, lanes[0], span.hd);
}

// outputs[r] += weights[r][k] * values[k] over the block, for kRows queries and kVectors vectors of hd.
template <int kRows, int kVectors>
inline void add_values(const float* weights, const float* values, uint32_t hd, float* outputs) {
  Floats sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load(outputs + static_cast<size_t>(r) * hd + v * kLanes);
  }
  for (uint32_t k = 0; k < kKeyBlock; ++k) {
    Floats value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = load(values + size_t{k} * hd + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Floats weight = broadcast(weights[static_cast<size_t>(r) * kKeyBlock + k]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add(weight, value[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(outputs + static_cast<size_t>(r) * hd + v * kLanes, sums[r][v]);
  }
}

template <int kRows>
inline void add_block_values(const float* weights, const float* values, uint32_t hd, float* outputs) {
  uint32_t j = 0;
  for (; hd - j >= 4 * kLanes; j += 4 * kLanes) add_values<kRows, 4>(weights, values + j, hd, outputs + j);
  for (; hd - j >= kLanes; j += kLanes) add_values<kRows, 1>(weights, values + j, hd, outputs + j);
  for (; j < hd; ++j) {
    for (int r = 0; r < kRows; ++r) {
      float sum = outputs[static_cast<size_t>(r) * hd + j];
      for (uint32_t k = 0; k < kKeyBlock; ++k) {
        sum += weights[static_cast<size_t>(r) * kKeyBlock + k] * values[size_t{k} * hd + j];
      }
      outputs[static_cast<size_t>(r) * hd + j] = sum;
    }
  }
}

// One block of keys: [begin, end) lies within it.
inline void attend_block(const AttentionSpan& span, uint32_t begin, uint32_t end) {
  float* block = span.scratch;
  float* scores = block + size_t{kKeyBlock} * span.hd;
  load_block(span, span.keys, begin, end, block);
  for (uint32_t k = 0; k < kKeyBlock; k += 4) {
    const float* keys = block + size_t{k} * span.hd;
    uint32_t q = 0;
    for (; span.count - q >= kScoreRows; q += kScoreRows) {
      score_tile<kScoreRows>(span.queries + q, keys, span.hd, scores + size_t{q} * kKeyBlock + k);
    }
    for (; q < span.count; ++q) score_tile<1>(span.queries + q, keys, span.hd, scores + size_t{q} * kKeyBlock + k);
  }
  load_block(span, span.values, begin, end, block);
  bool seen[kQueryTile];
  for (uint32_t q = 0; q < span.count; ++q) {
    const Visible visible = visible_keys(span, q, begin, end);
    seen[q] = visible.first < visible.last;
    if (seen[q]) update_softmax(span, q, visible, scores + size_t{q} * kKeyBlock);
  }
  for (uint32_t q = 0; q < span.count;) {
    const float* weights = scores + size_t{q} * kKeyBlock;
    float* outputs = span.outputs + size_t{q} * span.hd;
    bool whole = span.count - q >= kScoreRows;
    for (uint32_t i = 0; whole && i < kScoreRows; ++i) whole = seen[q + i];
    if (whole) {
      add_block_values<kScoreRows>(weights, block, span.hd, outputs);
      q += kScoreRows;
    } else {
      if (seen[q]) add_block_values<1>(weights, block, span.hd, outputs);
      ++q;
    }
  }
}

void attend(const AttentionSpan& span) {
  for (uint32_t q = 0; q < span.count; ++q) {
    span.peaks[q] = -__builtin_inff();
    span.totals[q] = 0.0f;
  }
  for (size_t i = 0; i < size_t{span.count} * span.hd; ++i) span.outputs[i] = 0.0f;
  for (uint32_t begin = span.begin; begin < span.end;) {
    const uint32_t block_end = (begin / kKeyBlock + 1) * kKeyBlock;
    const uint32_t end = block_end < span.end ? block_end : span.end;
    attend_block(span, begin, end);
    begin = end;
  }
}

void merge_span(float peak, float total, const float* output, size_t hd, float* into_peak, float* into_total,
                float* into_output) {
  if (peak == -__builtin_inff()) return;  // no key of the span was visible
  const float new_peak = peak > *into_peak ? peak : *into_peak;
  float here[kLanes], there[kLanes];
  store(here, exponential(broadcast(*into_peak - new_peak)));
  store(there, exponential(broadcast(peak - new_peak)));
  *into_peak = new_peak;
  *into_total = *into_total * here[0] + total * there[0];
  const Floats keep = broadcast(here[0]), take = broadcast(there[0]);
  transform<2>({into_output, output}, hd, into_output,
               [&](const Floats* v) { return multiply_add(v[1], take, multiply(v[0], keep)); });
}

}  // namespace
}  // namespace carat::exec::cpu
