#pragma once

// Caches in q8_0: int8 values with an fp16 scale for each 32 of a row, in planes of their own. A value is rounded to
// fp16 when it is multiplied with its scale, wherever that happens, so both ways below compute with the same numbers.
#include <cuda_fp16.h>

#include "exec/cuda/kernels/attention/attention_keys.cuh"
#include "exec/cuda/kernels/attention/kv_view.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"

namespace carat::cuda {

// Two of the four int8 in `word` as fp16, times `scale`. 0x6400 | b is the fp16 number 1024 + b, exact for b < 256.
template <uint32_t kFirst, uint32_t kSecond>
__device__ __forceinline__ uint32_t expand_pair(uint32_t word, __half2 scale) {
  constexpr uint32_t kSelector = 0x4040 | kSecond << 8 | kFirst;
  const uint32_t biased = __byte_perm(word ^ 0x80808080u, 0x64646464u, kSelector);
  const __half2 values = __hsub2(*reinterpret_cast<const __half2*>(&biased), __half2half2(__float2half(1152.0f)));
  const __half2 product = __hmul2(values, scale);
  return *reinterpret_cast<const uint32_t*>(&product);
}

__device__ __forceinline__ __half2 as_half2(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }

// The transfers that both rings share: which tile comes next, and its pieces on their way to shared memory.
template <AttentionTile T, typename Keys>
class QuantisedTransfers {
  using L = AttentionLayout<T>;
  static constexpr int kRowChunks = T.hd / 16;  // 16-byte pieces of a row of values
  static constexpr int kRowsPerPass = L::kThreads / kRowChunks;
  static constexpr int kScalePieces = L::kScaleColumns / 4;  // 8-byte pieces of a row of scales
  static_assert(L::kThreads % kRowChunks == 0 && T.bn % kRowsPerPass == 0 && T.hd % 128 == 0);
  static_assert(T.bn * kScalePieces <= L::kThreads);

 public:
  __device__ __forceinline__ QuantisedTransfers(const KvView& kv, const KvHead& head, uint32_t hd, const Keys& range)
      : quants_(kv_quants(kv, head, hd)),
        scales_(kv_scales(kv, head, L::kScaleColumns)),
        begin_(range.begin),
        length_(range.end - range.begin),
        cursor_(range),
        remaining_(2 * range.tiles) {}

  // One group per call, empty when no tile is left. Rows outside the range become zeros, scales too: an unused cell may
  // hold anything. place(row, chunk): where 16 values go.
  template <typename Place>
  __device__ __forceinline__ void issue(Place place, uint32_t scales) {
    if (remaining_ > 0) {
      const bool is_values = remaining_ % 2 == 1;
      const uint32_t key = cursor_.key;
      const uint32_t hd = quants_.length, chunk = threadIdx.x % kRowChunks;
      const bool chunk_in_row = chunk * 16 < hd;
      const int8_t* source = quants_.row(is_values, key) + (chunk_in_row ? chunk * 16 : 0);
#pragma unroll
      for (int pass = 0; pass < T.bn / kRowsPerPass; ++pass) {
        const uint32_t row = threadIdx.x / kRowChunks + pass * kRowsPerPass;
        const bool valid = chunk_in_row && key + row - begin_ < length_;
        copy_async(place(row, chunk), source + static_cast<uint64_t>(row) * hd, valid);
      }
      if (threadIdx.x < T.bn * kScalePieces) {
        const bool valid = key + threadIdx.x / kScalePieces - begin_ < length_;
        copy_async_8(scales + threadIdx.x * 8, scales_.row(is_values, key) + threadIdx.x * 4, valid);
      }
      --remaining_;
      if (is_values) cursor_.advance();
    }
    copy_async_commit();
  }

 private:
  KvRows<int8_t> quants_;
  KvRows<__half> scales_;
  uint32_t begin_, length_;
  typename Keys::template Cursor<T.bn> cursor_;  // at the tile to fetch next
  uint32_t remaining_;                           // tiles to fetch: even keys, odd values
};

// ---------------------------------------------------------------------------------------------------------- prompts

// A tile arrives as q8_0 in the second half of its place in the ring (scales in the first) and is expanded over it
// before it is used: every thread takes its share into registers, and once all have, writes it back as fp16. That
// costs two barriers a tile and no memory beyond the fp16 ring.
template <AttentionTile T, typename Keys>
class ExpandingRing {
  using L = AttentionLayout<T>;
  static constexpr int kRowChunks = T.hd / 16;
  static constexpr int kThreadChunks = T.bn * kRowChunks / L::kThreads;
  static constexpr uint32_t kQuantOffset = L::kTileBytes / 2;
  static_assert(T.bn * kRowChunks % L::kThreads == 0);

 public:
  __device__ __forceinline__ ExpandingRing(uint32_t shared, const KvView& kv, const KvHead& head, uint32_t hd,
                                           const Keys& range)
      : shared_(shared), transfers_(kv, head, hd, range) {}

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < T.ring - 1; ++i) issue();
  }

  // Waits for the next tile, expands it and returns its address.
  __device__ __forceinline__ uint32_t next() {
    copy_async_wait<T.ring - 2>();
    __syncthreads();
    issue();
    const uint32_t tile = shared_ + read_ * L::kTileBytes;
    expand(tile);
    read_ = read_ + 1 == T.ring ? 0 : read_ + 1;
    return tile;
  }

 private:
  __device__ __forceinline__ void issue() {
    const uint32_t tile = shared_ + write_ * L::kTileBytes;
    transfers_.issue([tile](uint32_t row, uint32_t chunk) { return tile + kQuantOffset + row * T.hd + chunk * 16; },
                     tile);
    write_ = write_ + 1 == T.ring ? 0 : write_ + 1;
  }

  __device__ __forceinline__ void expand(uint32_t tile) {
    uint4 quants[kThreadChunks];
    uint32_t scales[kThreadChunks];
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const uint32_t piece = threadIdx.x + i * L::kThreads;
      quants[i] = load_shared_16(tile + kQuantOffset + piece * 16);
      scales[i] = load_shared_2(tile + piece / 2 * 2);  // two pieces of 16 values have one scale
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const uint32_t piece = threadIdx.x + i * L::kThreads;
      const uint32_t row = piece / kRowChunks, chunk = piece % kRowChunks;
      const __half2 scale = as_half2(scales[i] * 0x10001u);
      const uint4 low = make_uint4(expand_pair<0, 1>(quants[i].x, scale), expand_pair<2, 3>(quants[i].x, scale),
                                   expand_pair<0, 1>(quants[i].y, scale), expand_pair<2, 3>(quants[i].y, scale));
      const uint4 high = make_uint4(expand_pair<0, 1>(quants[i].z, scale), expand_pair<2, 3>(quants[i].z, scale),
                                    expand_pair<0, 1>(quants[i].w, scale), expand_pair<2, 3>(quants[i].w, scale));
      // Eight threads write at a time; four of them begin with the second half, so that all banks are in use.
      const bool swap = chunk / 4 % 2 == 1;
      store_shared_16(tile + chunk_offset<T.hd>(row, 2 * chunk + swap), swap ? high : low);
      store_shared_16(tile + chunk_offset<T.hd>(row, 2 * chunk + !swap), swap ? low : high);
    }
    __syncthreads();
  }

  uint32_t shared_;
  QuantisedTransfers<T, Keys> transfers_;
  int read_ = 0, write_ = 0;
};

// ----------------------------------------------------------------------------------------------------------- decode

// Rows of `kColumns` int8 whose 16-byte chunks are permuted by XOR: the eight rows of a matrix load touch every bank
// once, and so do the 64 bytes that eight lanes read of two neighbouring rows (these differ in chunk bit 2).
template <int kColumns>
__device__ __forceinline__ uint32_t quant_chunk_offset(uint32_t row, uint32_t chunk) {
  return row * kColumns + ((chunk ^ ((row & 1) << 2 | (row >> 1 & 3))) << 4);
}

template <AttentionTile T, typename Keys>
class QuantisedRing {
  using L = AttentionLayout<T>;

 public:
  __device__ __forceinline__ QuantisedRing(uint32_t shared, const KvView& kv, const KvHead& head, uint32_t hd,
                                           const Keys& range)
      : shared_(shared), transfers_(kv, head, hd, range) {}

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < T.ring - 1; ++i) issue();
  }

  // As KeyValueRing::next().
  __device__ __forceinline__ uint32_t next() {
    copy_async_wait<T.ring - 2>();
    __syncthreads();
    issue();
    const uint32_t address = shared_ + read_ * L::kTileBytes;
    read_ = read_ + 1 == T.ring ? 0 : read_ + 1;
    return address;
  }

 private:
  __device__ __forceinline__ void issue() {
    const uint32_t tile = shared_ + write_ * L::kTileBytes;
    transfers_.issue([tile](uint32_t row, uint32_t chunk) { return tile + quant_chunk_offset<T.hd>(row, chunk); },
                     tile + T.bn * T.hd);
    write_ = write_ + 1 == T.ring ? 0 : write_ + 1;
  }

  uint32_t shared_;
  QuantisedTransfers<T, Keys> transfers_;
  int read_ = 0, write_ = 0;
};

// Query fragments for QuantisedOperands: a sum over columns may take them in any order, and with this one a lane finds
// its keys' values for four steps in 16 consecutive bytes. Step 4 i + j of lane (g, t) multiplies the columns
// 64 i + 16 t + 4 j ... + 4.
template <AttentionTile T>
struct PermutedQueries {
  uint32_t fragments[T.hd / 16][4];

  // queries: [16, hd] fp16 in shared memory, chunks placed by chunk_offset.
  __device__ __forceinline__ explicit PermutedQueries(uint32_t queries) {
    const uint32_t group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < T.hd / 64; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t chunk = 8 * i + 2 * member + half;
        const uint4 upper = load_shared_16(queries + chunk_offset<T.hd>(group, chunk));
        const uint4 lower = load_shared_16(queries + chunk_offset<T.hd>(group + 8, chunk));
        uint32_t(&first)[4] = fragments[4 * i + 2 * half];
        uint32_t(&second)[4] = fragments[4 * i + 2 * half + 1];
        first[0] = upper.x, first[1] = lower.x, first[2] = upper.y, first[3] = lower.y;
        second[0] = upper.z, second[1] = lower.z, second[2] = upper.w, second[3] = lower.w;
      }
    }
  }
  __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[step][i];
  }
};

// The products of one 16-row tile with tiles of q8_0 in shared memory.
template <AttentionTile T>
struct QuantisedOperands {
  using L = AttentionLayout<T>;
  using Scores = float[L::kRowTiles][L::kKeyTiles][4];
  using Outputs = float[L::kRowTiles][L::kColumnTiles][4];
  static constexpr int kWarpBlocks = L::kWarpColumns / 32;  // scales of a warp's columns
  static constexpr int kScaleBytes = L::kScaleColumns * 2;  // of a row

  // s = Q K^T for this warp's keys, as independent sums, so that the tensor core need not wait for itself.
  static __device__ __forceinline__ void score(Scores& s, const PermutedQueries<T>& queries, uint32_t keys, int lane,
                                               int warp_n) {
    constexpr int kChains = 4 / L::kKeyTiles;
    static_assert(kChains >= 1);
    const uint32_t row = warp_n * L::kWarpKeys + lane / 4;
    const uint32_t scales = keys + T.bn * T.hd;
    // Of the two scales in a word, lanes 0 and 1 of four use the first, 2 and 3 the second.
    const uint32_t selector = lane % 4 < 2 ? 0x1010 : 0x3232;
#pragma unroll
    for (int n = 0; n < L::kKeyTiles; ++n) {
      const uint32_t address = keys + quant_chunk_offset<T.hd>(row + n * 8, lane % 4);
      uint32_t scale_words[T.hd / 64];
      load_words(scale_words, scales + (row + n * 8) * kScaleBytes);
      float sums[kChains][4] = {};
#pragma unroll
      for (int i = 0; i < T.hd / 64; ++i) {
        const uint4 quants = load_shared_16(address ^ (i * 64));
        const __half2 scale = as_half2(__byte_perm(scale_words[i], 0, selector));
        const uint32_t words[4] = {quants.x, quants.y, quants.z, quants.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t a[4];
          queries.fragment(a, 4 * i + j);
          multiply_add(sums[j % kChains], a, expand_pair<0, 1>(words[j], scale), expand_pair<2, 3>(words[j], scale));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[0][n][i] = sums[0][i];
#pragma unroll
        for (int chain = 1; chain < kChains; ++chain) s[0][n][i] += sums[chain][i];
      }
    }
  }

  // o += P V for this warp's columns. A transposed load of 16-bit pieces gives a lane two keys of two neighbouring
  // columns; even and odd columns become tiles of their own, which arrange() takes apart again.
  template <typename Probabilities>
  static __device__ __forceinline__ void accumulate(Outputs& o, const Probabilities& probabilities, uint32_t values,
                                                    int lane, int warp_n) {
    const uint32_t address = values + quant_chunk_offset<T.hd>(lane % 16, warp_n * (L::kWarpColumns / 16) + lane / 16);
    const uint32_t scales = values + T.bn * T.hd + lane % 4 * 2 * kScaleBytes + warp_n * kWarpBlocks * 2;
#pragma unroll
    for (int step = 0; step < T.bn / 16; ++step) {
      uint32_t a[4];
      probabilities.fragment(a, step, 0);
      // Of keys 2t, 2t + 1, 2t + 8 and 2t + 9.
      uint32_t scale_words[4][(kWarpBlocks + 1) / 2];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        load_words(scale_words[k], scales + (step * 16 + k / 2 * 8 + k % 2) * kScaleBytes);
      }
#pragma unroll
      for (int block = 0; block < kWarpBlocks; ++block) {
        const uint32_t selector = block % 2 == 0 ? 0x5410 : 0x7632;
        const __half2 near = as_half2(__byte_perm(scale_words[0][block / 2], scale_words[1][block / 2], selector));
        const __half2 far = as_half2(__byte_perm(scale_words[2][block / 2], scale_words[3][block / 2], selector));
        // (keys, columns) = (0-7, 0-15) (8-15, 0-15) (0-7, 16-31) (8-15, 16-31) of the block's 32 columns.
        uint32_t b[4];
        load_matrices_transposed(b, (address ^ (block * 32)) + step * 16 * T.hd);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int tile = 4 * block + 2 * half;
          multiply_add(o[0][tile], a, expand_pair<0, 2>(b[2 * half], near), expand_pair<0, 2>(b[2 * half + 1], far));
          multiply_add(o[0][tile + 1], a, expand_pair<1, 3>(b[2 * half], near),
                       expand_pair<1, 3>(b[2 * half + 1], far));
        }
      }
    }
  }

  // The output column of element 0 of column tile `tile` after arrange(), counted from the warp's first.
  static __device__ __forceinline__ int column(int lane, int tile) {
    return tile / 2 * 16 + lane % 4 * 4 + tile % 2 * 2;
  }
  // Tiles of the even and of the odd columns of 16 become tiles whose elements 0, 1 and 2, 3 are neighbours.
  static __device__ __forceinline__ void arrange(Outputs& o) {
#pragma unroll
    for (int tile = 0; tile < L::kColumnTiles; tile += 2) {
#pragma unroll
      for (int row = 0; row < 4; row += 2) {
        const float even = o[0][tile][row + 1];
        o[0][tile][row + 1] = o[0][tile + 1][row];
        o[0][tile + 1][row] = even;
      }
    }
  }

 private:
  // Scales that follow each other; a single one is the low half of its word.
  template <int kWords>
  static __device__ __forceinline__ void load_words(uint32_t (&words)[kWords], uint32_t address) {
    if constexpr (kWords % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 four = load_shared_16(address + i * 4);
        words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
      }
    } else if constexpr (kWords == 2) {
      const uint2 two = load_shared_8(address);
      words[0] = two.x, words[1] = two.y;
    } else {
      static_assert(kWords == 1);
      words[0] = kWarpBlocks == 1 ? load_shared_2(address) : load_shared_4(address);
    }
  }
};

}  // namespace carat::cuda
