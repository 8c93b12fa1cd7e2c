#pragma once

// The loop that prompt and decode attention share: O = softmax(Q K^T) V for one tile of query rows over a range of
// keys, with the softmax computed online (running maximum and sum per row, fp32).
//
// Key and value tiles arrive alternately (K0 V0 K1 V1 ...) through a ring in shared memory, ring - 1 of them in flight.
// Where a row's keys belong to one warp, its probabilities go from the score registers straight into the second
// product; where several warps share a row they exchange maxima and fp16 probabilities through shared memory.
#include <type_traits>

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/attention_half.cuh"
#include "exec/cuda/kernels/attention/attention_q8.cuh"

namespace carat::cuda {

// What brings the tiles of a cache to shared memory (keys: KeyRange or SelectedKeys), and what multiplies with them
// there.
template <AttentionTile T, typename Keys>
using RingOf = std::conditional_t<
    T.storage == TileStorage::kHalf, KeyValueRing<T, Keys>,
    std::conditional_t<T.storage == TileStorage::kExpanded, ExpandingRing<T, Keys>, QuantisedRing<T, Keys>>>;
template <AttentionTile T>
using OperandsOf = std::conditional_t<T.storage == TileStorage::kQuantised, QuantisedOperands<T>, HalfOperands<T>>;

// The queries of a decode block, in registers.
template <AttentionTile T>
using QueriesOf = std::conditional_t<T.storage == TileStorage::kQuantised, PermutedQueries<T>, RegisterQueries<T>>;

// One tile of queries against a range of keys.
template <AttentionTile T>
class AttentionRows {
  using L = AttentionLayout<T>;
  using Operands = OperandsOf<T>;

 public:
  float o[L::kRowTiles][L::kColumnTiles][4];  // not yet divided by the row's sum
  float row_max[L::kRowTiles][2];             // of score * log2(e)
  float row_sum[L::kRowTiles][2];             // this thread's share, until total_sums()

  __device__ __forceinline__ explicit AttentionRows(uint32_t shared, float* maxima)
      : probabilities_(shared + L::kProbabilityOffset),
        maxima_(maxima),
        lane_(threadIdx.x % 32),
        warp_m_(threadIdx.x / 32 / T.warps_n),
        warp_n_(threadIdx.x / 32 % T.warps_n) {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int c = 0; c < L::kColumnTiles; ++c) o[r][c][0] = o[r][c][1] = o[r][c][2] = o[r][c][3] = 0.0f;
      row_max[r][0] = row_max[r][1] = -INFINITY;
      row_sum[r][0] = row_sum[r][1] = 0.0f;
    }
  }

  // The block's row that this thread's element (tile, half) of a fragment belongs to.
  __device__ __forceinline__ int row(int tile, int half) const {
    return first_row() + tile * 16 + half * 8 + lane_ / 4;
  }
  __device__ __forceinline__ int first_row() const { return warp_m_ * L::kRowTiles * 16; }
  // The output column of element 0 of column tile `tile`.
  __device__ __forceinline__ int column(int tile) const {
    return warp_n_ * L::kWarpColumns + Operands::column(lane_, tile);
  }
  __device__ __forceinline__ int warp_n() const { return warp_n_; }

  template <typename Ring, typename Queries, typename Keys>
  __device__ __forceinline__ void attend(Ring& ring, const Queries& queries, const Keys& keys,
                                         const RowPositions<T>& rows) {
    for (uint32_t tile = 0; tile < keys.tiles; ++tile) {
      const uint32_t key = keys.template key<T.bn>(tile);
      float s[L::kRowTiles][L::kKeyTiles][4];
      Operands::score(s, queries, ring.next(), lane_, warp_n_);
      if (!rows.all_visible(key)) mask(s, key, rows);
      float tile_max[L::kRowTiles][2];
      warp_maxima(tile_max, s);
      if constexpr (L::kSharedRows) publish_maxima(tile_max);
      const uint32_t values = ring.next();
      if constexpr (L::kSharedRows) {
        shared_maxima(tile_max);
        uint32_t p[L::kRowTiles][L::kKeyTiles][2];
        update(p, s, tile_max);
        publish_probabilities(p);
        group_barrier();
        Operands::accumulate(o, SharedProbabilities{probabilities_, first_row()}, values, lane_, warp_n_);
      } else {
        RegisterProbabilities p;
        update(p.p, s, tile_max);
        Operands::accumulate(o, p, values, lane_, warp_n_);
      }
    }
    Operands::arrange(o);
  }

  // Completes row_sum over the threads and warps that share a row. Once, after attend().
  __device__ __forceinline__ void total_sums() {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        row_sum[r][h] += __shfl_xor_sync(0xffffffffu, row_sum[r][h], 1);
        row_sum[r][h] += __shfl_xor_sync(0xffffffffu, row_sum[r][h], 2);
        if (L::kSharedRows && lane_ % 4 == 0) maxima_[warp_n_ * T.bm + row(r, h)] = row_sum[r][h];
      }
    }
    if constexpr (L::kSharedRows) {
      group_barrier();
#pragma unroll
      for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          row_sum[r][h] = 0.0f;
#pragma unroll
          for (int w = 0; w < T.warps_n; ++w) row_sum[r][h] += maxima_[w * T.bm + row(r, h)];
        }
      }
    }
  }

  // Among the warps that share rows; other rows go on.
  __device__ __forceinline__ void group_barrier() const {
    if constexpr (!L::kSharedRows) {
      __syncwarp();
    } else if constexpr (T.warps_m == 1) {
      __syncthreads();
    } else {
      named_barrier<32 * T.warps_n>(1 + warp_m_);
    }
  }

 private:
  struct RegisterProbabilities {
    uint32_t p[L::kRowTiles][L::kKeyTiles][2];
    // The score fragments of two neighbouring 8-key tiles are an A fragment of 16 keys.
    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int tile) const {
      a[0] = p[tile][2 * step][0];
      a[1] = p[tile][2 * step][1];
      a[2] = p[tile][2 * step + 1][0];
      a[3] = p[tile][2 * step + 1][1];
    }
  };

  struct SharedProbabilities {
    uint32_t base;
    int first_row;
    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int tile) const {
      const uint32_t lane = threadIdx.x % 32;
      load_matrices(a, base + chunk_offset<T.bn>(first_row + tile * 16 + lane % 16, 2 * step + lane / 16));
    }
  };

  __device__ __forceinline__ void mask(float (&s)[L::kRowTiles][L::kKeyTiles][4], uint32_t key,
                                       const RowPositions<T>& rows) const {
    const uint32_t first = key + warp_n_ * L::kWarpKeys + lane_ % 4 * 2;
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < L::kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // Keys after the row's position wrap around to more than any span.
          if (rows.position[r][i / 2] - (first + n * 8 + i % 2) > rows.span) s[r][n][i] = -INFINITY;
        }
      }
    }
  }

  __device__ __forceinline__ void warp_maxima(float (&tile_max)[L::kRowTiles][2],
                                              const float (&s)[L::kRowTiles][L::kKeyTiles][4]) const {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float largest = fmaxf(s[r][0][2 * h], s[r][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < L::kKeyTiles; ++n) largest = fmaxf(largest, fmaxf(s[r][n][2 * h], s[r][n][2 * h + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        tile_max[r][h] = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      }
    }
  }

  __device__ __forceinline__ void publish_maxima(const float (&tile_max)[L::kRowTiles][2]) const {
    if (lane_ % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) maxima_[warp_n_ * T.bm + row(r, h)] = tile_max[r][h];
    }
  }

  __device__ __forceinline__ void shared_maxima(float (&tile_max)[L::kRowTiles][2]) const {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        tile_max[r][h] = maxima_[row(r, h)];
#pragma unroll
        for (int w = 1; w < T.warps_n; ++w) tile_max[r][h] = fmaxf(tile_max[r][h], maxima_[w * T.bm + row(r, h)]);
      }
    }
  }

  // The online softmax step: p = 2^(score - new maximum) as fp16, and what was summed so far scaled to the new maximum.
  // A row that has seen no key yet has maximum -infinity; 0 stands in for it, so that its p are 0 and not NaN.
  __device__ __forceinline__ void update(uint32_t (&p)[L::kRowTiles][L::kKeyTiles][2],
                                         const float (&s)[L::kRowTiles][L::kKeyTiles][4],
                                         const float (&tile_max)[L::kRowTiles][2]) {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
      float shrink[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float largest = fmaxf(row_max[r][h], tile_max[r][h] * kLog2E);
        const float reference = largest == -INFINITY ? 0.0f : largest;
        shrink[h] = exp2_fast(row_max[r][h] - reference);
        row_max[r][h] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < L::kKeyTiles; ++n) {
          const float p0 = exp2_fast(fmaf(s[r][n][2 * h], kLog2E, -reference));
          const float p1 = exp2_fast(fmaf(s[r][n][2 * h + 1], kLog2E, -reference));
          sum += p0 + p1;
          p[r][n][h] = pack_half2(p0, p1);
        }
        row_sum[r][h] = fmaf(row_sum[r][h], shrink[h], sum);
      }
      // The maximum settles after a few tiles; then nothing needs scaling.
      if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
        for (int c = 0; c < L::kColumnTiles; ++c) {
          o[r][c][0] *= shrink[0];
          o[r][c][1] *= shrink[0];
          o[r][c][2] *= shrink[1];
          o[r][c][3] *= shrink[1];
        }
      }
    }
  }

  __device__ __forceinline__ void publish_probabilities(const uint32_t (&p)[L::kRowTiles][L::kKeyTiles][2]) const {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < L::kKeyTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t chunk = warp_n_ * L::kKeyTiles + n;
          store_shared(probabilities_ + chunk_offset<T.bn>(row(r, h), chunk) + lane_ % 4 * 4, p[r][n][h]);
        }
      }
    }
  }

  uint32_t probabilities_;
  float* maxima_;
  int lane_;
  int warp_m_, warp_n_;
};

}  // namespace carat::cuda
