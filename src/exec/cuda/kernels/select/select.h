#pragma once

#include <cstdint>

namespace carat::cuda {

struct LaunchConfig;

inline constexpr uint32_t kSelectMax = 1024;       // most candidates a selection can return
inline constexpr uint32_t kSelectCapacity = 8192;  // most values that can be looked at to find them
inline constexpr uint32_t kSelectGroups = 4096;    // most groups a row is divided into

// Scratch of a selection over up to `rows` rows; counters start at zero and are left at zero.
struct SelectScratch {
  float* maxima;       // [rows, kSelectGroups]
  uint32_t* counters;  // [rows] finished blocks
};

// The k largest of each row of logits [rows, V], largest first, equal ones by lower index. *k is read on the device, so
// a captured graph can change it. tokens and values: [rows, kSelectMax]; counts[row] is min(k, V), or kSelectOverflow
// when too many logits are about as large as the k-th (the caller then selects on the host).
inline constexpr uint32_t kSelectOverflow = 0xffffffffu;
void select_best(const float* logits, uint32_t rows, uint32_t V, const uint32_t* k, const SelectScratch& scratch,
                 int32_t* tokens, float* values, uint32_t* counts, const LaunchConfig& launch);

// The same for logits that the soft-cap has yet to be applied to, as softcap() does; non_finite: [rows].
void softcap_and_select(float* logits, float cap, uint32_t* non_finite, uint32_t rows, uint32_t V, const uint32_t* k,
                        const SelectScratch& scratch, int32_t* tokens, float* values, uint32_t* counts,
                        const LaunchConfig& launch);

// values[i] = logits[tokens[i]].
void pick_logits(const float* logits, const int32_t* tokens, uint32_t count, float* values, const LaunchConfig& launch);

// cap * tanh(logit / cap) in place (cap 0: unchanged) of logits [rows, V]; a logit of row r that is not finite sets
// non_finite[r].
void softcap(float* logits, uint32_t rows, uint32_t V, float cap, uint32_t* non_finite, const LaunchConfig& launch);

}  // namespace carat::cuda
