#pragma once

// The token kernel is compiled several times, each time for what some models need; no CUDA needed here.
//
// One kernel that can do everything has 780 KB of instructions. What a layer of a small model executes of them, some
// 60 KB, then lies apart, and which code to go on with is asked for more often: 2% of a token of E4B in 4 bits.
#include <cstddef>

#include "exec/cuda/kernels/token_shape.h"

namespace carat::cuda {

struct TokenBuild {
  PackingSet packings = 0;            // of products by tasks and of tables
  PackingSet per_layer = 0;           // of products in registers (TokenWay::kGate, kProject)
  bool narrow = false, wide = false;  // residual streams: of up to as many columns as the threads have at a time; wider
  bool experts = false;               // mixtures of experts
  bool again = false;                 // products of a stream that the one before has absorbed: StageStart::kAgain
  constexpr bool covers(const TokenBuild& needs) const {
    return (needs.packings & ~packings) == 0 && (needs.per_layer & ~per_layer) == 0 && narrow >= needs.narrow &&
           wide >= needs.wide && experts >= needs.experts && again >= needs.again;
  }
};

// In the order in which they are asked; the last one can do everything. Files as they are shipped have their tables in
// Q6_K where the rest is of 4 bits, and one matrix of the E models in BF16. Where layers are long (31B) nothing is won.
inline constexpr TokenBuild kTokenQ8{.packings = packing_set({Packing::kQ8, Packing::kBF16}),
                                     .per_layer = packing_set({Packing::kQ8}),
                                     .narrow = true,
                                     .again = true};
inline constexpr TokenBuild kTokenQ4{.packings = packing_set({Packing::kQ4, Packing::kQ6K, Packing::kBF16}),
                                     .per_layer = packing_set({Packing::kQ4}),
                                     .narrow = true,
                                     .again = true};
inline constexpr TokenBuild kTokenQ4K{.packings = packing_set({Packing::kQ4K, Packing::kQ6K, Packing::kBF16}),
                                      .per_layer = packing_set({Packing::kQ4K}),
                                      .narrow = true,
                                      .again = true};
inline constexpr TokenBuild kTokenQ4Experts{
    .packings = packing_set({Packing::kQ4, Packing::kQ6K}), .narrow = true, .experts = true, .again = true};
inline constexpr TokenBuild kTokenAny{
    .packings = kAllPackings, .per_layer = kAllPackings, .narrow = true, .wide = true, .experts = true, .again = true};
inline constexpr TokenBuild kTokenBuilds[] = {kTokenQ8, kTokenQ4, kTokenQ4K, kTokenQ4Experts, kTokenAny};

// The first that covers the needs, as an index.
constexpr size_t token_build(const TokenBuild& needs) {
  size_t index = 0;
  while (!kTokenBuilds[index].covers(needs)) ++index;
  return index;
}

}  // namespace carat::cuda
