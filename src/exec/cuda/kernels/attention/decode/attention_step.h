#pragma once

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/elementwise/rope.h"

namespace carat::cuda {

// qkv_post() and attention_decode() in one launch, for steps in which every row is of another sequence: a block makes
// its own queries of the projections, and the one that reaches the newest key puts it and its value into the cache.
// job: as for qkv_post(), its q not used; attention_step_supports() its shape, the cache is fp16. The rest as for
// attention_decode().
void attention_step(const QkvPost& job, const float* projections, uint32_t rows, float* out, uint32_t splits,
                    float* partial, uint32_t* counters, const LaunchConfig& launch);
void attention_step(const QkvPost& job, const __nv_bfloat16* projections, uint32_t rows, __nv_bfloat16* out,
                    uint32_t splits, float* partial, uint32_t* counters, const LaunchConfig& launch);

// The instantiated kernels, one translation unit per head dimension.
struct DecodeArguments;
template <typename Projection>
void launch_step_256(const DecodeArguments& arguments, const QkvPost& job, const Projection* projections, uint32_t rows,
                     uint32_t splits, const LaunchConfig& launch);
template <typename Projection>
void launch_step_512(const DecodeArguments& arguments, const QkvPost& job, const Projection* projections, uint32_t rows,
                     uint32_t splits, const LaunchConfig& launch);

}  // namespace carat::cuda
