#pragma once

// Decode attention that starts from the projections (device code): what qkv_post does, by the blocks that need it. All
// of a row's blocks make the same queries, of 4 heads of 256 columns mostly: less than the launch of a kernel costs.
#include "exec/cuda/kernels/attention/decode/attention_decode.cuh"
#include "exec/cuda/kernels/attention/decode/attention_step.h"

namespace carat::cuda {

__device__ __forceinline__ float4 projected4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ float4 projected4(const __nv_bfloat16* from) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u), __uint_as_float(raw.y << 16),
                     __uint_as_float(raw.y & 0xffff0000u));
}

template <typename Projection>
struct ProjectedHeads {
  static constexpr bool kReady = false;
  QkvPost job;
  const Projection* projections;  // [rows, q | k | v]

  // Zeros where no head will be.
  template <AttentionTile T>
  __device__ __forceinline__ void clear(uint32_t queries) const {
    using L = AttentionLayout<T>;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < T.bm * L::kChunks; i += L::kThreads) {
      store_shared_16(queries + i * 16, make_uint4(0, 0, 0, 0));
    }
    __syncthreads();
  }

  // A warp a head: the queries to shared memory and, in the block with the newest key, that and its value to the cache.
  template <AttentionTile T>
  __device__ __forceinline__ void prepare(uint32_t row, uint32_t kv_head, const HeadGroup& heads, bool newest,
                                          uint32_t queries) const {
    constexpr uint32_t kWarps = AttentionLayout<T>::kThreads / 32;
    const AttentionShape& shape = job.shape;
    const uint32_t source_heads = shape.H + (job.only_q ? 0 : (job.v_from_k ? 1 : 2) * shape.Hkv);
    const Projection* from = projections + static_cast<uint64_t>(row) * source_heads * shape.hd;
    const uint32_t items = heads.count + (newest ? 2 : 0);
#pragma unroll 1
    for (uint32_t item = threadIdx.x / 32; item < items; item += kWarps) {
      if (item < heads.count) {
        query<T>(from + (heads.first + item) * shape.hd, row, item, queries);
      } else {
        const bool is_v = item > heads.count;
        const uint32_t head = shape.H + kv_head + (is_v && !job.v_from_k ? shape.Hkv : 0);
        key_or_value<T>(from + head * shape.hd, row, kv_head, is_v);
      }
    }
  }

 private:
  // Four neighbouring columns of the first half of a head and their partners in the second: lane l has those from
  // 4 l + 128 i on.
  template <AttentionTile T>
  struct Head {
    static constexpr int kPieces = (T.hd + 255) / 256;
    float low[kPieces][4], high[kPieces][4];
  };
  static __device__ __forceinline__ uint32_t column(int piece) { return 4 * (threadIdx.x % 32) + 128 * piece; }
  static __device__ __forceinline__ void spread(const float4& v, float (&to)[4]) {
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }

  // The head times 1 / rms.
  template <AttentionTile T>
  __device__ __forceinline__ void load(const Projection* from, Head<T>& head) const {
    const uint32_t half = job.shape.hd / 2;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Head<T>::kPieces; ++i) {
      const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      const bool there = column(i) < half;
      spread(there ? projected4(from + column(i)) : zero, head.low[i]);
      spread(there ? projected4(from + column(i) + half) : zero, head.high[i]);
#pragma unroll
      for (int e = 0; e < 4; ++e) squares += head.low[i][e] * head.low[i][e] + head.high[i][e] * head.high[i][e];
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    const float factor = rsqrtf(squares / static_cast<float>(job.shape.hd) + job.eps);
#pragma unroll
    for (int i = 0; i < Head<T>::kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) head.low[i][e] *= factor, head.high[i][e] *= factor;
    }
  }
  template <AttentionTile T>
  __device__ __forceinline__ void weigh_and_rotate(const float* weight, uint32_t row, Head<T>& head) const {
    const uint32_t half = job.shape.hd / 2;
    const float2* table = job.table + static_cast<uint64_t>(row) * job.pairs;
#pragma unroll
    for (int i = 0; i < Head<T>::kPieces; ++i) {
      if (column(i) >= half) continue;
      float first[4], second[4];
      spread(*reinterpret_cast<const float4*>(weight + column(i)), first);
      spread(*reinterpret_cast<const float4*>(weight + column(i) + half), second);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 turn = column(i) + e < job.pairs ? table[column(i) + e] : make_float2(1.0f, 0.0f);
        const float a = head.low[i][e] * first[e], b = head.high[i][e] * second[e];
        head.low[i][e] = a * turn.x - b * turn.y;
        head.high[i][e] = a * turn.y + b * turn.x;
      }
    }
  }
  static __device__ __forceinline__ uint2 halves(const float (&v)[4]) {
    return make_uint2(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]));
  }

  template <AttentionTile T>
  __device__ __forceinline__ void query(const Projection* from, uint32_t row, uint32_t tile_row,
                                        uint32_t queries) const {
    Head<T> head;
    load<T>(from, head);
    weigh_and_rotate<T>(job.q_norm, row, head);
    const auto put = [&](uint32_t c, const uint2& v) {
      const uint32_t to = queries + chunk_offset<T.hd>(tile_row, c / 8) + c % 8 * 2;
      store_shared(to, v);
    };
#pragma unroll
    for (int i = 0; i < Head<T>::kPieces; ++i) {
      if (column(i) >= job.shape.hd / 2) continue;
      put(column(i), halves(head.low[i]));
      put(column(i) + job.shape.hd / 2, halves(head.high[i]));
    }
  }
  template <AttentionTile T>
  __device__ __forceinline__ void key_or_value(const Projection* from, uint32_t row, uint32_t kv_head,
                                               bool is_v) const {
    Head<T> head;
    load<T>(from, head);
    if (!is_v) weigh_and_rotate<T>(job.k_norm, row, head);
    const KvHead cached(job.shape, job.sequences[row], kv_head);
    __half* to = kv_halves(job.kv, cached, job.shape.hd).row(is_v, job.positions[row]);
#pragma unroll
    for (int i = 0; i < Head<T>::kPieces; ++i) {
      if (column(i) >= job.shape.hd / 2) continue;
      *reinterpret_cast<uint2*>(to + column(i)) = halves(head.low[i]);
      *reinterpret_cast<uint2*>(to + column(i) + job.shape.hd / 2) = halves(head.high[i]);
    }
  }
};

}  // namespace carat::cuda
