#pragma once

// Caches in fp16: their tiles pass through shared memory as they are, and are the operands of the matrix products.
#include "exec/cuda/kernels/attention/attention_keys.cuh"
#include "exec/cuda/kernels/attention/kv_view.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"

namespace carat::cuda {

template <AttentionTile T, typename Keys>
class KeyValueRing {
  using L = AttentionLayout<T>;
  static constexpr int kRowsPerPass = L::kThreads / L::kChunks;

 public:
  __device__ __forceinline__ KeyValueRing(uint32_t shared, const KvView& kv, const KvHead& head, uint32_t hd,
                                          const Keys& keys)
      : shared_(shared),
        row_(threadIdx.x / L::kChunks),
        chunk_in_row_(threadIdx.x % L::kChunks * 8 < hd),
        rows_(kv_halves(kv, head, hd)
                  .from(static_cast<uint64_t>(row_) * hd + (chunk_in_row_ ? threadIdx.x % L::kChunks * 8 : 0))),
        begin_(keys.begin),
        length_(keys.end - keys.begin),
        cursor_(keys),
        remaining_(2 * keys.tiles) {}

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
  // range are zeros: what an unused cell holds may be NaN, and a probability of zero does not silence that.
  __device__ __forceinline__ void issue() {
    if (remaining_ > 0) {
      const bool values = remaining_ % 2 == 1;
      const __half* source = rows_.row(values, cursor_.key);
      const uint32_t tile = shared_ + write_ * L::kTileBytes;
      const uint32_t chunk = threadIdx.x % L::kChunks;
#pragma unroll
      for (int pass = 0; pass < T.bn / kRowsPerPass; ++pass) {
        const uint32_t row = row_ + pass * kRowsPerPass;
        const bool valid = chunk_in_row_ && cursor_.key + row - begin_ < length_;
        copy_async(tile + chunk_offset<T.hd>(row, chunk), source, valid);
        source += static_cast<uint64_t>(kRowsPerPass) * rows_.length;
      }
      --remaining_;
      if (values) cursor_.advance();
      write_ = write_ + 1 == T.ring ? 0 : write_ + 1;
    }
    copy_async_commit();
  }

  uint32_t shared_;
  uint32_t row_;  // of a tile, and whether the head has the 16-byte chunk that this thread copies of rows
  bool chunk_in_row_;
  KvRows<__half> rows_;  // from that row and chunk on
  uint32_t begin_, length_;
  typename Keys::template Cursor<T.bn> cursor_;  // at the tile to fetch next
  uint32_t remaining_;                           // tiles to fetch: even keys, odd values
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

  __device__ __forceinline__ explicit RegisterQueries(uint32_t queries) {
    const SharedQueries<T> source(queries, 0);
#pragma unroll
    for (int step = 0; step < T.hd / 16; ++step) source.fragment(fragments[step], step, 0);
  }
  __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[step][i];
  }
};

// The products with tiles of fp16 in shared memory.
template <AttentionTile T>
struct HalfOperands {
  using L = AttentionLayout<T>;
  using Scores = float[L::kRowTiles][L::kKeyTiles][4];
  using Outputs = float[L::kRowTiles][L::kColumnTiles][4];

  // s = Q K^T for this warp's rows and keys.
  template <typename Queries>
  static __device__ __forceinline__ void score(Scores& s, const Queries& queries, uint32_t keys, int lane, int warp_n) {
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < L::kKeyTiles; ++n) s[r][n][0] = s[r][n][1] = s[r][n][2] = s[r][n][3] = 0.0f;
    }
    if constexpr (L::kKeyTiles == 1) {
      score_eight_keys(s, queries, keys, lane, warp_n);
      return;
    }
    // One load covers 16 keys x 16 columns: (keys, columns) = (0-7, 0-7) (0-7, 8-15) (8-15, 0-7) (8-15, 8-15).
    const uint32_t first = warp_n * L::kWarpKeys + lane / 16 * 8 + lane % 8;
    const uint32_t address = keys + chunk_offset<T.hd>(first, lane / 8 % 2);
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
  static __device__ __forceinline__ void score_eight_keys(Scores& s, const Queries& queries, uint32_t keys, int lane,
                                                          int warp_n) {
    float part[3][L::kRowTiles][4] = {};
    const uint32_t address = keys + chunk_offset<T.hd>(warp_n * 8 + lane % 8, lane / 8);
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

  // o += P V for this warp's rows and columns.
  template <typename Probabilities>
  static __device__ __forceinline__ void accumulate(Outputs& o, const Probabilities& probabilities, uint32_t values,
                                                    int lane, int warp_n) {
    // One load covers 16 keys x 16 columns: (keys, columns) = (0-7, 0-7) (8-15, 0-7) (0-7, 8-15) (8-15, 8-15).
    const uint32_t address = values + chunk_offset<T.hd>(lane % 16, warp_n * L::kColumnTiles + lane / 16);
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

  // The output column of element 0 of column tile `tile`, counted from the warp's first.
  static __device__ __forceinline__ int column(int lane, int tile) { return tile * 8 + lane % 4 * 2; }
  // Brings the outputs into the order of column(): nothing to do.
  static __device__ __forceinline__ void arrange(Outputs&) {}
};

}  // namespace carat::cuda
