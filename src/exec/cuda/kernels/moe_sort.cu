// Prompt rows sorted by expert, and their results brought back. Sorting is bound by latency: one block does it all in
// one launch, because more blocks would have to wait for one another. Combining is bound by memory.
#include <stdexcept>

#include "exec/cuda/kernels/moe.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kSortThreads = 1024, kSortWarps = kSortThreads / 32;
static_assert(kMaxExperts % 32 == 0 && kMaxExperts <= kSortThreads);

// Lanes whose `id` is the same as this lane's. Lanes beyond the end have an id no other lane has.
__device__ __forceinline__ uint32_t same_id(uint32_t id) { return __match_any_sync(0xffffffffu, id); }

__device__ __forceinline__ bool is_first(uint32_t lanes) { return (lanes & ((1u << (threadIdx.x % 32)) - 1)) == 0; }

// Sum over the lanes before this one.
__device__ __forceinline__ uint32_t sum_before(uint32_t value) {
  uint32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 >= distance) sum += other;
  }
  return sum - value;
}

// Walks a warp's share of the (row, slot) pairs, 32 at a time and the next ones already on their way. work(i, id,
// lanes) is called by all lanes; those beyond the end have id == kMaxExperts + lane.
template <typename Work>
__device__ void walk_share(const uint32_t* ids, uint32_t begin, uint32_t end, Work work) {
  const uint32_t lane = threadIdx.x % 32;
  const auto load = [&](uint32_t i) { return i < end ? ids[i] : kMaxExperts + lane; };
  uint32_t next = load(begin + lane);
  for (uint32_t i = begin + lane; i < begin + (end - begin + 31) / 32 * 32; i += 32) {
    const uint32_t id = next;
    next = load(i + 32);
    work(i, id, same_id(id));
  }
}

// A stable counting sort: each warp takes a contiguous share, counts its experts, and places its pairs after those of
// the warps before it. The order never depends on the order anything runs in.
__global__ void __launch_bounds__(kSortThreads)
    moe_sort_kernel(const uint32_t* ids, uint32_t total, uint32_t used, uint32_t experts, uint32_t* offsets,
                    uint32_t* source, uint32_t* place) {
  __shared__ uint32_t counts[kSortWarps][kMaxExperts];  // then: where the warp's next pair of the expert goes
  __shared__ uint32_t warp_totals[kMaxExperts / 32];
  const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  for (uint32_t i = thread; i < kSortWarps * kMaxExperts; i += kSortThreads) (&counts[0][0])[i] = 0;
  wait_for_predecessor();
  release_successor();
  __syncthreads();
  const uint32_t share = (total + kSortWarps - 1) / kSortWarps;
  const uint32_t begin = min(total, warp * share), end = min(total, begin + share);
  walk_share(ids, begin, end, [&](uint32_t, uint32_t id, uint32_t lanes) {
    if (id < kMaxExperts && is_first(lanes)) counts[warp][id] += __popc(lanes);
    __syncwarp();
  });
  __syncthreads();

  // Expert by expert: what the warps before have, and what the experts before have.
  uint32_t of_expert = 0;
  if (thread < kMaxExperts) {
    for (uint32_t w = 0; w < kSortWarps; ++w) {
      const uint32_t mine = counts[w][thread];
      counts[w][thread] = of_expert;
      of_expert += mine;
    }
    const uint32_t before = sum_before(of_expert);
    if (lane == 31) warp_totals[warp] = before + of_expert;
    of_expert = before;
  }
  __syncthreads();
  if (thread < kMaxExperts) {
    for (uint32_t w = 0; w < warp; ++w) of_expert += warp_totals[w];
    for (uint32_t w = 0; w < kSortWarps; ++w) counts[w][thread] += of_expert;
    if (thread < experts) offsets[thread] = of_expert;
    if (thread == 0) offsets[experts] = total;
  }
  __syncthreads();

  walk_share(ids, begin, end, [&](uint32_t i, uint32_t id, uint32_t lanes) {
    if (id < kMaxExperts) {
      const uint32_t to = counts[warp][id] + __popc(lanes & ((1u << lane) - 1));
      source[to] = i / used;
      place[i] = to;
    }
    __syncwarp();
    if (id < kMaxExperts && is_first(lanes)) counts[warp][id] += __popc(lanes);
    __syncwarp();
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
              uint32_t* place, const Launch& how) {
  if (experts == 0 || experts > kMaxExperts) throw std::logic_error("internal check failed: moe_sort experts");
  launch("moe_sort", moe_sort_kernel, dim3(1), dim3(kSortThreads), 0, how, ids, rows * used, used, experts, offsets,
         source, place);
}

void moe_combine(const __nv_bfloat16* sorted, const uint32_t* place, const float* weights, uint32_t rows, uint32_t used,
                 uint32_t d, __nv_bfloat16* out, const Launch& how) {
  if (d % 8 != 0 || used > kMaxExpertsUsed) throw std::logic_error("internal check failed: moe_combine shape");
  constexpr uint32_t kThreads = 256;
  const uint64_t pieces = uint64_t{rows} * (d / 8);
  launch("moe_combine", moe_combine_kernel<8>, dim3(static_cast<uint32_t>((pieces + kThreads - 1) / kThreads)),
         dim3(kThreads), 0, how, reinterpret_cast<const uint4*>(sorted), place, weights, used, pieces, d / 8,
         reinterpret_cast<uint4*>(out));
}

}  // namespace carat::cuda
