#pragma once

// The loop that prompt and decode attention share: O = softmax(Q K^T) V for one tile of query rows over a range of
// keys, with the softmax computed online (running maximum and sum per row, fp32).
//
// Key and value tiles arrive alternately (K0 V0 K1 V1 ...) through a ring in shared memory, ring - 1 of them in flight.
// Where a row's keys belong to one warp, its probabilities go from the score registers straight into the second
// product; where several warps share a row they exchange maxima and fp16 probabilities through shared memory.
#include "exec/cuda/kernels/attention_config.h"
#include "exec/cuda/kernels/attention_mma.cuh"

namespace carat::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// Shared-memory tiles are rows of `kColumns` fp16 whose 16-byte chunks are permuted by XOR, so that the eight rows of a
// matrix load (and the rows of fragment stores) touch every bank once. Rows under 128 bytes share a line of banks.
template <int kColumns>
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  constexpr uint32_t kRowsPerLine = kColumns >= 64 ? 1 : 64 / kColumns;
  constexpr uint32_t kMask = kColumns >= 64 ? 7 : kColumns / 8 - 1;
  return row * kColumns * 2 + ((chunk ^ (row / kRowsPerLine & kMask)) << 4);
}

// Keys that some row of the tile may see: positions [begin, end), in the key tiles first_tile ... + tiles.
struct KeyRange {
  uint32_t begin;
  uint32_t end;
  uint32_t first_tile;
  uint32_t tiles;
};

// What each row may see: its own position and `span` keys before it.
template <AttentionTile T>
struct RowPositions {
  uint32_t position[AttentionLayout<T>::kRowTiles][2];  // of this thread's rows g and g + 8 of each 16-row tile
  uint32_t lowest, highest;                             // over all rows of the block
  uint32_t span;

  // Whether every row sees every key of the tile that starts at `key`.
  __device__ __forceinline__ bool all_visible(uint32_t key) const {
    return key + T.bn - 1 <= lowest && highest - key <= span;
  }
};

__device__ __forceinline__ uint32_t visible_span(uint32_t window) { return window == 0 ? 0x7fffffffu : window - 1; }

template <AttentionTile T>
class KeyValueRing {
  using L = AttentionLayout<T>;
  static constexpr int kRowsPerPass = L::kThreads / L::kChunks;

 public:
  // k, v: [slots, hd] of one sequence and KV head.
  __device__ __forceinline__ KeyValueRing(uint32_t shared, const __half* k, const __half* v, uint32_t slots,
                                          uint32_t hd, const KeyRange& range)
      : shared_(shared),
        slots_(slots),
        hd_(hd),
        begin_(range.begin),
        length_(range.end - range.begin),
        key_(range.first_tile * T.bn),
        remaining_(2 * range.tiles) {
    const uint32_t chunk = threadIdx.x % L::kChunks;
    row_ = threadIdx.x / L::kChunks;
    chunk_in_row_ = chunk * 8 < hd;
    const uint64_t offset = static_cast<uint64_t>(row_) * hd + (chunk_in_row_ ? chunk * 8 : 0);
    k_ = k + offset;
    v_ = v + offset;
  }

  // Puts the first ring - 1 tiles under way, one group each.
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < T.ring - 1; ++i) issue();
  }

  // Waits for the next tile and returns its address. The barrier also tells that every warp is done with the tile
  // before, whose place the next transfer takes.
  __device__ __forceinline__ uint32_t next() {
    copy_async_wait<T.ring - 2>();
    __syncthreads();
    issue();
    const uint32_t address = shared_ + read_ * L::kTileBytes;
    read_ = read_ + 1 == T.ring ? 0 : read_ + 1;
    return address;
  }

 private:
  // One group per call, empty when no tile is left, so that the count in next() holds to the end. Rows outside the
  // range are zeros: what an unused slot holds may be NaN, and a probability of zero does not silence that.
  __device__ __forceinline__ void issue() {
    if (remaining_ > 0) {
      const bool values = remaining_ % 2 == 1;
      const __half* source = (values ? v_ : k_) + static_cast<uint64_t>(key_ % slots_) * hd_;
      const uint32_t tile = shared_ + write_ * L::kTileBytes;
      const uint32_t chunk = threadIdx.x % L::kChunks;
#pragma unroll
      for (int pass = 0; pass < T.bn / kRowsPerPass; ++pass) {
        const uint32_t row = row_ + pass * kRowsPerPass;
        const bool valid = chunk_in_row_ && key_ + row - begin_ < length_;
        copy_async(tile + chunk_offset<T.hd>(row, chunk), source, valid);
        source += static_cast<uint64_t>(kRowsPerPass) * hd_;
      }
      --remaining_;
      if (values) key_ += T.bn;
      write_ = write_ + 1 == T.ring ? 0 : write_ + 1;
    }
    copy_async_commit();
  }

  uint32_t shared_;
  const __half* k_;
  const __half* v_;
  uint32_t slots_, hd_;
  uint32_t begin_, length_;
  uint32_t key_;        // first position of the tile to fetch next
  uint32_t remaining_;  // tiles to fetch: even keys, odd values
  uint32_t row_;
  bool chunk_in_row_;
  int read_ = 0, write_ = 0;
};

// Query fragments read from shared memory whenever they are needed.
template <AttentionTile T>
struct SharedQueries {
  uint32_t lane_address;

  __device__ __forceinline__ SharedQueries(uint32_t queries, int warp_row) {
    const uint32_t lane = threadIdx.x % 32;
    lane_address = queries + chunk_offset<T.hd>(warp_row + lane % 16, lane / 16);
  }
  // A of columns 16 step ... + 16 and 16-row tile `tile`.
  __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int tile) const {
    load_matrices(a, (lane_address ^ (step * 32)) + tile * 16 * T.hd * 2);
  }
};

// Query fragments of one 16-row tile kept in registers.
template <AttentionTile T>
struct RegisterQueries {
  static_assert(AttentionLayout<T>::kRowTiles == 1);
  uint32_t fragments[T.hd / 16][4];

  __device__ __forceinline__ explicit RegisterQueries(const SharedQueries<T>& source) {
#pragma unroll
    for (int step = 0; step < T.hd / 16; ++step) source.fragment(fragments[step], step, 0);
  }
  __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[step][i];
  }
};

// One tile of queries against a range of keys.
template <AttentionTile T>
class AttentionRows {
  using L = AttentionLayout<T>;

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
  __device__ __forceinline__ int column(int tile) const { return warp_n_ * L::kWarpColumns + tile * 8 + lane_ % 4 * 2; }
  __device__ __forceinline__ int warp_n() const { return warp_n_; }

  template <typename Queries>
  __device__ __forceinline__ void attend(KeyValueRing<T>& ring, const Queries& queries, const KeyRange& range,
                                         const RowPositions<T>& rows) {
    for (uint32_t tile = 0; tile < range.tiles; ++tile) {
      const uint32_t key = (range.first_tile + tile) * T.bn;
      float s[L::kRowTiles][L::kKeyTiles][4];
      score(s, queries, ring.next());
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
        accumulate(SharedProbabilities{probabilities_, first_row()}, values);
      } else {
        RegisterProbabilities p;
        update(p.p, s, tile_max);
        accumulate(p, values);
      }
    }
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

  // s = Q K^T for this warp's rows and keys.
  template <typename Queries>
  __device__ __forceinline__ void score(float (&s)[L::kRowTiles][L::kKeyTiles][4], const Queries& queries,
                                        uint32_t keys) const {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < L::kKeyTiles; ++n) s[r][n][0] = s[r][n][1] = s[r][n][2] = s[r][n][3] = 0.0f;
    }
    if constexpr (L::kKeyTiles == 1) {
      score_eight_keys(s, queries, keys);
      return;
    }
    // One load covers 16 keys x 16 columns: (keys, columns) = (0-7, 0-7) (0-7, 8-15) (8-15, 0-7) (8-15, 8-15).
    const uint32_t first = warp_n_ * L::kWarpKeys + lane_ / 16 * 8 + lane_ % 8;
    const uint32_t address = keys + chunk_offset<T.hd>(first, lane_ / 8 % 2);
#pragma unroll
    for (int step = 0; step < T.hd / 16; ++step) {
      uint32_t a[L::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < L::kRowTiles; ++r) queries.fragment(a[r], step, r);
#pragma unroll
      for (int n = 0; n < L::kKeyTiles / 2; ++n) {
        uint32_t b[4];
        load_matrices(b, (address ^ (step * 32)) + n * 16 * T.hd * 2);
#pragma unroll
        for (int r = 0; r < L::kRowTiles; ++r) {
          multiply_add(s[r][2 * n], a[r], b[0], b[1]);
          multiply_add(s[r][2 * n + 1], a[r], b[2], b[3]);
        }
      }
    }
  }

  // The same where a warp has a single tile of eight keys: a load covers 32 columns, and four independent sums keep the
  // tensor core from waiting for itself.
  template <typename Queries>
  __device__ __forceinline__ void score_eight_keys(float (&s)[L::kRowTiles][L::kKeyTiles][4], const Queries& queries,
                                                   uint32_t keys) const {
    float part[3][L::kRowTiles][4] = {};
    const uint32_t address = keys + chunk_offset<T.hd>(warp_n_ * 8 + lane_ % 8, lane_ / 8);
#pragma unroll
    for (int step = 0; step < T.hd / 32; ++step) {
      uint32_t b[4];
      load_matrices(b, address ^ (step * 64));
#pragma unroll
      for (int r = 0; r < L::kRowTiles; ++r) {
        uint32_t a[4];
        queries.fragment(a, 2 * step, r);
        multiply_add(step % 2 == 0 ? s[r][0] : part[0][r], a, b[0], b[1]);
        queries.fragment(a, 2 * step + 1, r);
        multiply_add(part[1 + step % 2][r], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[r][0][i] = (s[r][0][i] + part[0][r][i]) + (part[1][r][i] + part[2][r][i]);
    }
  }

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

  // o += P V for this warp's rows and columns.
  template <typename Probabilities>
  __device__ __forceinline__ void accumulate(const Probabilities& probabilities, uint32_t values) {
    // One load covers 16 keys x 16 columns: (keys, columns) = (0-7, 0-7) (8-15, 0-7) (0-7, 8-15) (8-15, 8-15).
    const uint32_t address = values + chunk_offset<T.hd>(lane_ % 16, warp_n_ * L::kColumnTiles + lane_ / 16);
#pragma unroll
    for (int step = 0; step < T.bn / 16; ++step) {
      uint32_t a[L::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < L::kRowTiles; ++r) probabilities.fragment(a[r], step, r);
#pragma unroll
      for (int c = 0; c < L::kColumnTiles / 2; ++c) {
        uint32_t b[4];
        load_matrices_transposed(b, (address ^ (c * 32)) + step * 16 * T.hd * 2);
#pragma unroll
        for (int r = 0; r < L::kRowTiles; ++r) {
          multiply_add(o[r][2 * c], a[r], b[0], b[1]);
          multiply_add(o[r][2 * c + 1], a[r], b[2], b[3]);
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
