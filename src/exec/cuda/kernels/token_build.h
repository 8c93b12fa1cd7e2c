#pragma once

// The token kernel is compiled several times, each time for what some models need; no CUDA needed here.
//
// An SM keeps some 64 KB of instructions, and a layer of a small model executes as many. So what a model does not need
// is left out where it would stand in between, and what is known of all of a build's matrices is not asked at run time:
// 3 to 7% of a token of E2B, and of E4B in 4 bits (docs/performance-log.md). One build can do everything.
#include <cstddef>

#include "exec/cuda/kernels/token_shape.h"

namespace carat::cuda {

struct TokenBuild {
  PackingSet packings = 0;            // of products by tasks and of tables
  PackingSet per_layer = 0;           // of products in registers (TokenWay::kGate, kProject)
  bool narrow = false, wide = false;  // residual streams: of up to as many columns as the threads have at a time; wider
  bool experts = false;               // mixtures of experts
  constexpr bool covers(const TokenBuild& needs) const {
    return (needs.packings & ~packings) == 0 && (needs.per_layer & ~per_layer) == 0 && narrow >= needs.narrow &&
           wide >= needs.wide && experts >= needs.experts;
  }
};

// In the order in which they are asked. Files as they are shipped have their tables in Q6_K where the rest is of 4
// bits, and one matrix of the E models in BF16. Where layers are long (31B) nothing is won.
inline constexpr TokenBuild kTokenQ8{
    .packings = packing_set({Packing::kQ8, Packing::kBF16}), .per_layer = packing_set({Packing::kQ8}), .narrow = true};
inline constexpr TokenBuild kTokenQ4{.packings = packing_set({Packing::kQ4, Packing::kQ6K, Packing::kBF16}),
                                     .per_layer = packing_set({Packing::kQ4}),
                                     .narrow = true};
inline constexpr TokenBuild kTokenQ4K{.packings = packing_set({Packing::kQ4K, Packing::kQ6K, Packing::kBF16}),
                                      .per_layer = packing_set({Packing::kQ4K}),
                                      .narrow = true};
inline constexpr TokenBuild kTokenQ4Experts{
    .packings = packing_set({Packing::kQ4, Packing::kQ6K}), .narrow = true, .experts = true};
inline constexpr TokenBuild kTokenAny{
    .packings = kAllPackings, .per_layer = kAllPackings, .narrow = true, .wide = true, .experts = true};
inline constexpr TokenBuild kTokenBuilds[] = {kTokenQ8, kTokenQ4, kTokenQ4K, kTokenQ4Experts, kTokenAny};

// The first that covers the needs, as an index.
constexpr size_t token_build(const TokenBuild& needs) {
  size_t index = 0;
  while (!kTokenBuilds[index].covers(needs)) ++index;
  return index;
}

}  // namespace carat::cuda
