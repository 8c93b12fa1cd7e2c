// Prompt rows sorted by expert, and their results brought back. Sorting is bound by latency: a block for each expert
// reads the choices of all rows and needs to know nothing of the other blocks. Combining is bound by memory.
#include <stdexcept>

#include "exec/cuda/kernels/moe/moe.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kSortThreads = 512, kSortWarps = kSortThreads / 32;
static_assert(kSortWarps <= 32);

// The (row, slot) pairs of a warp, a contiguous share of all; 32 at a time, several groups on their way at once.
// work(i, id) is called by all lanes together; ids of lanes beyond the end are no expert's.
template <typename Work>
__device__ __forceinline__ void walk_share(const uint32_t* ids, uint32_t begin, uint32_t end, Work work) {
  constexpr int kAhead = 8;
  for (uint32_t first = begin; first < end; first += 32 * kAhead) {
    uint32_t group[kAhead];
#pragma unroll
    for (int g = 0; g < kAhead; ++g) {
      const uint32_t i = first + g * 32 + threadIdx.x % 32;
      group[g] = i < end ? ids[i] : UINT32_MAX;
    }
#pragma unroll
    for (int g = 0; g < kAhead; ++g) work(first + g * 32 + threadIdx.x % 32, group[g]);
  }
}

// Block e makes expert e's part of a stable counting sort: pairs of smaller experts come before it, and its own in
// their order. Each warp counts its share, waits for the counts of the warps before it, and places its pairs. The order
// never depends on the order anything runs in.
__global__ void __launch_bounds__(kSortThreads) moe_sort_kernel(const uint32_t* ids, uint32_t total, uint32_t used,
                                                                uint32_t* offsets, uint32_t* source, uint32_t* place) {
  __shared__ uint32_t smaller_of_warp[kSortWarps], own_of_warp[kSortWarps];
  const uint32_t expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t share = (total + kSortThreads - 1) / kSortThreads * 32;
  const uint32_t begin = min(total, warp * share), end = min(total, begin + share);
  wait_for_predecessor();
  release_successor();
  uint32_t smaller = 0, own = 0;
  walk_share(ids, begin, end, [&](uint32_t, uint32_t id) {
    smaller += __popc(__ballot_sync(0xffffffffu, id < expert));
    own += __popc(__ballot_sync(0xffffffffu, id == expert));
  });
  if (lane == 0) {
    smaller_of_warp[warp] = smaller;
    own_of_warp[warp] = own;
  }
  __syncthreads();
  const uint32_t first = __reduce_add_sync(0xffffffffu, lane < kSortWarps ? smaller_of_warp[lane] : 0);
  uint32_t to = first + __reduce_add_sync(0xffffffffu, lane < warp ? own_of_warp[lane] : 0);
  if (threadIdx.x == 0) {
    offsets[expert] = first;
    if (expert == gridDim.x - 1) offsets[gridDim.x] = total;
  }
  if (own == 0) return;
  walk_share(ids, begin, end, [&](uint32_t i, uint32_t id) {
    const uint32_t lanes = __ballot_sync(0xffffffffu, id == expert);
    if (id == expert) {
      const uint32_t at = to + __popc(lanes & ((1u << lane) - 1));
      source[at] = i / used;
      place[i] = at;
    }
    to += __popc(lanes);
  });
}

// One thread: eight columns of one row, the pieces of all its experts on their way at once.
template <uint32_t kUsed>
__global__ void moe_combine_kernel(const uint4* sorted, const uint32_t* place, const float* weights, uint32_t used,
                                   uint64_t pieces, uint32_t row_pieces, uint4* out) {
  wait_for_predecessor();
  release_successor();
  const uint64_t at = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  if (at >= pieces) return;
  const uint64_t row = at / row_pieces, piece = at % row_pieces;
  float sums[8] = {};
#pragma unroll
  for (uint32_t first = 0; first < kMaxExpertsUsed; first += kUsed) {
    uint4 values[kUsed];
    float weight[kUsed];
#pragma unroll
    for (uint32_t s = 0; s < kUsed; ++s) {
      const bool there = first + s < used;
      weight[s] = there ? weights[row * used + first + s] : 0.0f;
      values[s] = there ? sorted[uint64_t{place[row * used + first + s]} * row_pieces + piece] : uint4{};
    }
#pragma unroll
    for (uint32_t s = 0; s < kUsed; ++s) {
      const uint32_t words[4] = {values[s].x, values[s].y, values[s].z, values[s].w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        sums[2 * w] += weight[s] * __uint_as_float(words[w] << 16);
        sums[2 * w + 1] += weight[s] * __uint_as_float(words[w] & 0xffff0000u);
      }
    }
    if (first + kUsed >= used) break;
  }
  const auto pair = [](float low, float high) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&rounded);
  };
  out[at] = uint4{pair(sums[0], sums[1]), pair(sums[2], sums[3]), pair(sums[4], sums[5]), pair(sums[6], sums[7])};
}

}  // namespace

void moe_sort(const uint32_t* ids, uint32_t rows, uint32_t used, uint32_t experts, uint32_t* offsets, uint32_t* source,
              uint32_t* place, const LaunchConfig& launch) {
  if (experts == 0 || experts > kMaxExperts) throw std::logic_error("internal check failed: moe_sort experts");
  launch_kernel("moe_sort", moe_sort_kernel, dim3(experts), dim3(kSortThreads), 0, launch, ids, rows * used, used,
                offsets, source, place);
}

void moe_combine(const __nv_bfloat16* sorted, const uint32_t* place, const float* weights, uint32_t rows, uint32_t used,
                 uint32_t d, __nv_bfloat16* out, const LaunchConfig& launch) {
  if (d % 8 != 0 || used > kMaxExpertsUsed) throw std::logic_error("internal check failed: moe_combine shape");
  constexpr uint32_t kThreads = 256;
  const uint64_t pieces = uint64_t{rows} * (d / 8);
  launch_kernel("moe_combine", moe_combine_kernel<8>, dim3(static_cast<uint32_t>((pieces + kThreads - 1) / kThreads)),
                dim3(kThreads), 0, launch, reinterpret_cast<const uint4*>(sorted), place, weights, used, pieces, d / 8,
                reinterpret_cast<uint4*>(out));
}

}  // namespace carat::cuda
