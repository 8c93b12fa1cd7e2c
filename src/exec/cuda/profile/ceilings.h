#pragma once

#include "exec/cuda/device/facts.h"
#include "exec/cuda/profile/profile.h"

namespace carat::cuda {

// What this GPU reaches at its two limits: reading a buffer far larger than its caches, and one large bf16 matrix
// product on values like those of a model (zeros would let it clock higher). Takes about a gibibyte of device memory
// meanwhile.
exec::ProfileCeilings measure_ceilings(const GpuFacts& gpu);

}  // namespace carat::cuda
