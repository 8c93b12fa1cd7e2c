#pragma once

// The token kernel is compiled several times, each time for what some models need; no CUDA needed here.
//
// An SM keeps some 64 KB of instructions, and a layer of a small model executes as many. So what a model does not need
// is left out where it would stand in between, and what is known of all of a build's matrices is not asked at run time:
// 3 to 7% of a token of E2B, and of E4B in 4 bits (docs/performance.md). One build can do everything.
#include <cstddef>

#include "exec/cuda/kernels/megakernel/megakernel_shape.h"

namespace carat::cuda {

struct MegakernelBuild {
  PackingSet packings = 0;            // of products by tasks and of tables
  PackingSet per_layer = 0;           // of products in registers (MegakernelWay::kGate, kProject)
  bool narrow = false, wide = false;  // residual streams: of up to as many columns as the threads have at a time; wider
  bool experts = false;               // mixtures of experts
  constexpr bool covers(const MegakernelBuild& needs) const {
    return (needs.packings & ~packings) == 0 && (needs.per_layer & ~per_layer) == 0 && narrow >= needs.narrow &&
           wide >= needs.wide && experts >= needs.experts;
  }
};

// In the order in which they are asked. Files as they are shipped have their tables in Q6_K where the rest is of 4
// bits, and one matrix of the E models in BF16. Where layers are long (31B) nothing is won.
inline constexpr MegakernelBuild kMegakernelQ8{
    .packings = packing_set({Packing::kQ8, Packing::kBF16}), .per_layer = packing_set({Packing::kQ8}), .narrow = true};
inline constexpr MegakernelBuild kMegakernelQ4{.packings = packing_set({Packing::kQ4, Packing::kQ6K, Packing::kBF16}),
                                               .per_layer = packing_set({Packing::kQ4}),
                                               .narrow = true};
inline constexpr MegakernelBuild kMegakernelQ4K{.packings = packing_set({Packing::kQ4K, Packing::kQ6K, Packing::kBF16}),
                                                .per_layer = packing_set({Packing::kQ4K}),
                                                .narrow = true};
inline constexpr MegakernelBuild kMegakernelQ4Experts{
    .packings = packing_set({Packing::kQ4, Packing::kQ6K}), .narrow = true, .experts = true};
inline constexpr MegakernelBuild kMegakernelAny{
    .packings = kAllPackings, .per_layer = kAllPackings, .narrow = true, .wide = true, .experts = true};
inline constexpr MegakernelBuild kMegakernelBuilds[] = {kMegakernelQ8, kMegakernelQ4, kMegakernelQ4K,
                                                        kMegakernelQ4Experts, kMegakernelAny};

// The first that covers the needs, as an index.
constexpr size_t megakernel_build(const MegakernelBuild& needs) {
  size_t index = 0;
  while (!kMegakernelBuilds[index].covers(needs)) ++index;
  return index;
}

}  // namespace carat::cuda
