#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "exec/cuda/device/facts.h"

namespace carat::cuda::test {

// A GPU that is not here: sizes as its data sheet has them, half a gibibyte of its memory taken.
inline GpuFacts made_up_gpu(uint32_t capability, uint32_t gib, uint32_t sm_count = 64) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  GpuFacts facts;
  facts.name = "made-up " + std::to_string(gib) + " GB";
  facts.capability = capability;
  facts.sm_count = sm_count;
  facts.shared_memory = (capability == 80 ? 163 : capability == 90 ? 227 : 99) * 1024;
  facts.warpgroup_products = capability == 90;
  facts.row_scaled_fp8 = capability == 90;
  facts.l2_bytes = uint64_t{40} << 20;
  facts.total_bytes = gib * kGiB;
  facts.free_bytes = facts.total_bytes - kGiB / 2;
  return facts;
}

// One of each size and capability carat is built for.
inline std::array<GpuFacts, 6> made_up_gpus() {
  return {made_up_gpu(86, 8, 28),  made_up_gpu(89, 12, 60),  made_up_gpu(120, 16, 70),
          made_up_gpu(86, 24, 82), made_up_gpu(80, 80, 108), made_up_gpu(90, 141, 132)};
}

}  // namespace carat::cuda::test
