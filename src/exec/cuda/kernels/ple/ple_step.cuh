#pragma once

// The end of a layer (ple_step.h) by clusters of 8 blocks, 8 rows each (device code): five launches in one.
//
//   block b   row b:  v = x + rms(delta) * delta_norm            ──▶ fp16 operands of all 8 rows in every block,
//                                                                    v itself to the blocks that own its columns
//             an eighth of gate, one tile and step a warp        ──▶ gelu(sum) * factors of P values in every block
//             an eighth of proj (d / 8 columns), a tile a warp   ──▶ sums of squares of every row in every block
//             u and n of its columns
//
// Arrows go through the shared memory of the cluster and end at a barrier of it. The weights (0.7 MB each in Q8_0) come
// into registers before the predecessor has ended: what is left is latency, that of three exchanges.
// Both norms of the end need one exchange: |v + f e|^2 = |v|^2 + 2 f v.e + f^2 |e|^2 with e = y * post_norm.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/ple/ple_step.h"
#include "exec/cuda/kernels/ptx/cluster.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/skinny/skinny_fragments.cuh"
#include "exec/cuda/kernels/skinny/skinny_rows.cuh"

namespace carat::cuda {

inline constexpr uint32_t kPleThreads = 32 * kPleWarps;
static_assert(4 * kPleThreads >= kPleMostColumns, "a thread has four columns of a row");

// Four floats more than columns: the lanes of a result tile then read every bank once.
inline constexpr uint32_t kPleSliceColumns = kPleMostColumns / kPleBlocks;
inline constexpr uint32_t kPleSliceStride = kPleSliceColumns + 4;

struct PleShared {
  uint4 operands[kPleMostColumns / 8 * kPleBlocks];  // v of all rows, as skinny_rows.h has a tile
  uint4 inner_operands[kPleMostInner / 8 * kPleBlocks];
  float slice[kPleBlocks][kPleSliceStride];  // v, then n, of this block's columns
  float4 partial[kPleWarps][32];             // gate's sums over one step
  float inner[kPleBlocks][kPleMostInner];    // gelu(gate v) * factors
  float4 warp_sums[kPleWarps][kPleBlocks];   // of y^2, v^2, v e, e^2 of each row
  float4 sums[kPleBlocks][kPleBlocks];       // the same: [block][row]
  float scale[kPleBlocks], inner_scale[kPleBlocks];
  float scratch[2][kPleWarps];
};

__device__ __forceinline__ void st_cluster(uint32_t there, const float4& v) {
  st_cluster(there, make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)));
}

template <typename Fragments, typename Delta>
struct PleBlock {
  static constexpr int kChunks = Fragments::kChunks, kPieces = static_cast<int>(kSkinnyStepChunks) / kChunks;
  using Weights = typename Fragments::Regs[kPieces][2];

  const PleStep<Delta>& job;
  PleShared& shared;
  uint32_t rows, first_row;  // of this cluster
  uint32_t rank, warp, lane, steps;
  uint32_t gate_tiles, proj_tiles;  // of 16 weight rows, of this block

  // Rows g and g + 8 of a tile, 256 columns.
  __device__ __forceinline__ void load(const PackedView& w, uint32_t tile, uint32_t step, Weights& to) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint64_t row = tile * 16 + r * 8 + lane / 4;
      const auto source = Fragments::source(w, row * w.steps + step, lane % 4);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) Fragments::load(source, 0, piece, to[piece][r]);
    }
  }
  // x: the operands of the step. Lane 4 g + t gets weight rows g and g + 8 of rows 2 t and 2 t + 1.
  __device__ __forceinline__ void multiply(const Weights& w, const uint4* x, float (&sums)[4]) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        uint32_t f[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r) Fragments::chunk(w[piece][r], c, f[r]);
        const uint4 b = x[(piece * kChunks + c) * 32 + lane];
        const uint32_t first[4] = {f[0][0], f[1][0], f[0][1], f[1][1]};
        const uint32_t second[4] = {f[0][2], f[1][2], f[0][3], f[1][3]};
        multiply_add(sums, first, b.x, b.y);
        multiply_add(sums, second, b.z, b.w);
      }
    }
  }

  __device__ __forceinline__ float sum_of_block(float value, float* scratch) const {
    value = warp_sum(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < kPleWarps; ++w) total += scratch[w];
    return total;
  }
  static __device__ __forceinline__ float warp_most(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      value = max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
  }
  static __device__ __forceinline__ float most_of(const float4& v) {
    return max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
  }

  // v of the block's own row, to whoever needs it.
  __device__ __forceinline__ void absorb() const {
    const ResidualNormOf<Delta>& a = job.residual;
    const uint32_t c = 4 * threadIdx.x, row = first_row + rank;
    const bool there = row < rows && c < a.d;
    const uint64_t at = static_cast<uint64_t>(row) * a.d;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f), f = v, w = v;
    if (there) {
      v = load4(a.x + at, c, a.d);
      f = load4(a.delta + at, c, a.d);
      w = load4(a.delta_norm, c, a.d);
    }
    const float mean = sum_of_block(dot4(f), shared.scratch[0]) / static_cast<float>(a.d);
    const float factor = rsqrtf(mean + a.eps);
    v = make_float4(v.x + f.x * factor * w.x, v.y + f.y * factor * w.y, v.z + f.z * factor * w.z,
                    v.w + f.w * factor * w.w);
    const float own_most = warp_most(most_of(v));
    if (lane == 0) shared.scratch[1][warp] = own_most;
    __syncthreads();
    float largest = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < kPleWarps; ++i) largest = max_or_nan(largest, shared.scratch[1][i]);
    const float scale = skinny_scale(largest), inverse = 1.0f / scale;

    // Neighbours make a chunk of 8 columns together and hand it to four blocks each.
    const uint2 mine = make_uint2(half_pair(v.x * inverse, v.z * inverse), half_pair(v.y * inverse, v.w * inverse));
    const uint2 other = make_uint2(__shfl_xor_sync(0xffffffffu, mine.x, 1), __shfl_xor_sync(0xffffffffu, mine.y, 1));
    const bool odd = lane % 2 != 0;
    const uint4 chunk =
        odd ? make_uint4(other.x, other.y, mine.x, mine.y) : make_uint4(mine.x, mine.y, other.x, other.y);
    cluster_wait();  // all blocks of the cluster run
    if (c < a.d) {
      const uint32_t to = shared_address(shared.operands + skinny_place(c / 8 * 8, rank, 1));
#pragma unroll
      for (uint32_t i = 0; i < kPleBlocks / 2; ++i) st_cluster(mapa(to, (odd ? kPleBlocks / 2 : 0) + i), chunk);
      const uint32_t columns = 16 * proj_tiles;
      st_cluster(mapa(shared_address(&shared.slice[rank][c % columns]), c / columns), v);
    }
    if (threadIdx.x < kPleBlocks) st_cluster(mapa(shared_address(&shared.scale[rank]), threadIdx.x), scale);
  }

  // Which result of a tile a thread of 128 has: output and row.
  struct Result {
    uint32_t output, row;
  };
  static __device__ __forceinline__ Result result_of(uint32_t index) {
    const uint32_t of_lane = index / 4, component = index % 4;
    return {of_lane / 4 + component / 2 * 8, of_lane % 4 * 2 + component % 2};
  }

  // The inner values of this block's gate tiles, to all blocks. factor: of the thread's result.
  __device__ __forceinline__ void inner_values(float factor) const {
    if (threadIdx.x >= 128 * gate_tiles) return;
    const uint32_t tile = threadIdx.x / 128, index = threadIdx.x % 128;
    const Result result = result_of(index);
    float sum = 0.0f;
    for (uint32_t step = 0; step < steps; ++step) {
      sum += reinterpret_cast<const float*>(shared.partial[tile * steps + step])[index];
    }
    const float value = gelu(sum * shared.scale[result.row]) * factor;
    const uint32_t to = shared_address(&shared.inner[result.row][(rank * gate_tiles + tile) * 16 + result.output]);
#pragma unroll
    for (uint32_t block = 0; block < kPleBlocks; ++block) st_cluster(mapa(to, block), value);
  }

  // The inner values as operands: a warp a row.
  __device__ __forceinline__ void round_inner() const {
    if (warp >= kPleBlocks) return;
    const uint32_t c = 8 * lane;
    float4 low = make_float4(0.0f, 0.0f, 0.0f, 0.0f), high = low;
    if (c < job.gate.rows) {
      low = *reinterpret_cast<const float4*>(&shared.inner[warp][c]);
      high = *reinterpret_cast<const float4*>(&shared.inner[warp][c + 4]);
    }
    const float scale = skinny_scale(warp_most(max_or_nan(most_of(low), most_of(high))));
    shared.inner_operands[skinny_place(c, warp, 1)] = skinny_chunk(low, high, 1.0f / scale);
    if (lane == 0) shared.inner_scale[warp] = scale;
  }

  // What one lane has of y, and of the norms there: columns g and g + 8 of the warp's tile, rows 2 t and 2 t + 1.
  struct Ends {
    float y[4];
    float post[2], next[2];
  };

  __device__ __forceinline__ uint32_t column_of(int i) const { return warp * 16 + lane / 4 + i / 2 * 8; }  // in slice

  // Sums over this block's columns, to all blocks.
  __device__ __forceinline__ void sum_rows(const Ends& ends) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (warp < proj_tiles) {
#pragma unroll
        for (int i = r; i < 4; i += 2) {
          const float v = shared.slice[lane % 4 * 2 + r][column_of(i)], y = ends.y[i], e = y * ends.post[i / 2];
          s = make_float4(s.x + y * y, s.y + v * v, s.z + v * e, s.w + e * e);
        }
      }
#pragma unroll
      for (int offset = 4; offset < 32; offset <<= 1) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, offset);
        s.y += __shfl_xor_sync(0xffffffffu, s.y, offset);
        s.z += __shfl_xor_sync(0xffffffffu, s.z, offset);
        s.w += __shfl_xor_sync(0xffffffffu, s.w, offset);
      }
      if (lane < 4) shared.warp_sums[warp][lane * 2 + r] = s;
    }
    __syncthreads();
    if (threadIdx.x < 4 * kPleBlocks) {
      float sum = 0.0f;
#pragma unroll
      for (uint32_t w = 0; w < kPleWarps; ++w) {
        sum += reinterpret_cast<const float*>(shared.warp_sums[w])[threadIdx.x];
      }
      const uint32_t to = shared_address(reinterpret_cast<float*>(shared.sums[rank]) + threadIdx.x);
#pragma unroll
      for (uint32_t block = 0; block < kPleBlocks; ++block) st_cluster(mapa(to, block), sum);
    }
  }

  // u to memory, n to `slice` in place of v.
  __device__ __forceinline__ void finish(const Ends& ends) const {
    const ResidualNormOf<Delta>& a = job.residual;
    const float inverse_d = 1.0f / static_cast<float>(a.d);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t row = lane % 4 * 2 + r;
      float4 s = shared.sums[0][row];
#pragma unroll
      for (uint32_t block = 1; block < kPleBlocks; ++block) {
        const float4& more = shared.sums[block][row];
        s = make_float4(s.x + more.x, s.y + more.y, s.z + more.z, s.w + more.w);
      }
      const float f = rsqrtf(s.x * inverse_d + a.eps);
      const float squares = (s.y + 2.0f * f * s.z + f * f * s.w) * a.scale * a.scale;
      const float factor = rsqrtf(max_or_nan(squares, 0.0f) * inverse_d + a.eps);
#pragma unroll
      for (int i = r; i < 4; i += 2) {
        float& place = shared.slice[row][column_of(i)];
        const float u = (place + f * ends.y[i] * ends.post[i / 2]) * a.scale;
        const uint64_t column = rank * 16 * proj_tiles + column_of(i);
        if (first_row + row < rows) a.x_out[static_cast<uint64_t>(first_row + row) * a.d + column] = u;
        place = u * factor * ends.next[i / 2];
      }
    }
  }

  // 8 columns of a row a thread.
  template <typename Store>
  __device__ __forceinline__ void hand_out(const Store& store) const {
    for (uint32_t i = threadIdx.x; i < proj_tiles * 2 * kPleBlocks; i += kPleThreads) {
      const uint32_t row = i % kPleBlocks, c = i / kPleBlocks * 8;
      if (first_row + row >= rows) continue;
      const float* from = &shared.slice[row][c];
      store(row, rank * 16 * proj_tiles + c, *reinterpret_cast<const float4*>(from),
            *reinterpret_cast<const float4*>(from + 4));
    }
  }
  __device__ __forceinline__ void hand_out(__nv_bfloat16* out) const {
    hand_out([&](uint32_t row, uint32_t column, const float4& low, const float4& high) {
      __nv_bfloat16* to = out + static_cast<uint64_t>(first_row + row) * job.residual.d + column;
      store4(to, 0, 8, low);
      store4(to, 4, 8, high);
    });
  }
  // The scale follows from what n cannot exceed: the largest of a row would take another exchange, and fp16 is as exact
  // a few powers of two below its end.
  __device__ __forceinline__ void hand_out(const SkinnyRows& out) const {
    const float scale = skinny_scale(job.bound), inverse = 1.0f / scale;
    hand_out([&](uint32_t row, uint32_t column, const float4& low, const float4& high) {
      if (column == 0) out.scale[first_row + row] = scale;
      reinterpret_cast<uint4*>(out.fragments)[skinny_place(column, first_row + row, out.tiles)] =
          skinny_chunk(low, high, inverse);
    });
  }

  template <typename Out>
  __device__ __forceinline__ void run(const Out& out) const {
    cluster_arrive();
    // Weights first: they never change.
    const bool has_gate = warp < gate_tiles * steps, has_proj = warp < proj_tiles;
    Weights gate, proj;
    if (has_gate) load(job.gate, rank * gate_tiles + warp / steps, warp % steps, gate);
    if (has_proj) load(job.proj, rank * proj_tiles + warp, 0, proj);
    wait_for_predecessor();
    release_successor();
    float factor = 0.0f;
    if (threadIdx.x < 128 * gate_tiles) {
      const Result result = result_of(threadIdx.x % 128);
      const uint64_t row = first_row + result.row;
      const uint32_t output = (rank * gate_tiles + threadIdx.x / 128) * 16 + result.output;
      if (row < rows) factor = job.factors[row * job.factors_leading + output];
    }
    absorb();
    cluster_arrive();
    cluster_wait();

    float sums[4] = {};
    if (has_gate) {
      multiply(gate, shared.operands + warp % steps * kSkinnyStepChunks * 32, sums);
      shared.partial[warp][lane] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    }
    Ends ends{};
    if (has_proj) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t column = rank * 16 * proj_tiles + column_of(2 * i);
        ends.post[i] = job.post_norm[column];
        ends.next[i] = job.residual.next_norm[column];
      }
    }
    __syncthreads();
    inner_values(factor);
    cluster_arrive();
    cluster_wait();

    round_inner();
    __syncthreads();
    if (has_proj) {
      multiply(proj, shared.inner_operands, ends.y);
#pragma unroll
      for (int i = 0; i < 4; ++i) ends.y[i] *= shared.inner_scale[lane % 4 * 2 + i % 2];
    }
    sum_rows(ends);
    cluster_arrive();
    cluster_wait();

    if (has_proj) finish(ends);
    __syncthreads();
    hand_out(out);
  }
};

}  // namespace carat::cuda
