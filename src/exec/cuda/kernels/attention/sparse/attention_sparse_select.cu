// Chooses the key blocks of block-sparse attention. Mean keys first (bound by reading the keys once); then, for a tile
// of query rows and KV head, two passes over the mean keys on tensor cores: one for the maximum and sum of each row's
// scores, one for the probabilities, which are summed over the rows; then the best blocks by a radix search.
//
// Twice hd operations per row and block of 64 keys and pass: 1/64 of what dense attention does.
#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_launch.h"

namespace carat::cuda {
namespace {

constexpr AttentionTile kTile = Prefill512Wide::kTile;
using Layout = AttentionLayout<kTile>;
constexpr uint32_t kThreads = Layout::kThreads;
static_assert(kTile.bn == kSparseBlock && kThreads == 256 && Layout::kSharedRows);

// ------------------------------------------------------------------------------------------------------- mean keys

constexpr uint32_t kPoolThreads = 128;  // four columns each

// Four columns of the keys of a block, whose rows follow one another, as they lie in the cache: fp16, or q8_0.
struct HalfKeys {
  const __half* rows;
  uint64_t hd;

  using Raw = uint2;
  __device__ __forceinline__ Raw load(uint32_t i) const { return *reinterpret_cast<const uint2*>(rows + i * hd); }
  static __device__ __forceinline__ float4 values(const Raw& bits) {
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&bits.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&bits.y));
    return make_float4(low.x, low.y, high.x, high.y);
  }
};
struct QuantisedKeys {
  const int8_t* rows;
  const __half* scales;
  uint64_t hd, scale_columns;

  struct Raw {
    char4 quants;
    __half scale;
  };
  __device__ __forceinline__ Raw load(uint32_t i) const {
    return {*reinterpret_cast<const char4*>(rows + i * hd), scales[i * scale_columns]};
  }
  static __device__ __forceinline__ float4 values(const Raw& raw) {
    // Rounded on its own: the compiler must not fuse the product with the sum.
    const auto value = [scale = __half2float(raw.scale)](int8_t quant) { return __fmul_rn(quant, scale); };
    return make_float4(value(raw.quants.x), value(raw.quants.y), value(raw.quants.z), value(raw.quants.w));
  }
};

// The sum of a block's keys, in order; the loads of kAtOnce of them are in flight together.
template <typename Keys>
__device__ __forceinline__ float4 sum_keys(const Keys& keys) {
  constexpr uint32_t kAtOnce = 16;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (uint32_t first = 0; first < kSparseBlock; first += kAtOnce) {
    typename Keys::Raw raw[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) raw[i] = keys.load(first + i);
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const float4 v = Keys::values(raw[i]);
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kPoolThreads)
    pool_keys_kernel(const __grid_constant__ AttentionShape shape, const __grid_constant__ KvView kv, uint32_t sequence,
                     const __grid_constant__ SparseScratch scratch) {
  wait_for_predecessor();
  release_successor();
  const uint32_t block = blockIdx.x, kv_head = blockIdx.y, column = threadIdx.x * 4;
  const uint32_t hd = shape.hd;
  if (column >= hd) return;
  const KvHead head(shape, sequence, kv_head);
  const uint32_t position = block * kSparseBlock;
  float4 sum;
  if (kv.k_quants == nullptr) {
    sum = sum_keys(HalfKeys{kv_halves(kv, head, hd).row(false, position) + column, hd});
  } else {
    const uint32_t scale_columns = kv_scale_columns(hd);
    sum = sum_keys(QuantisedKeys{kv_quants(kv, head, hd).row(false, position) + column,
                                 kv_scales(kv, head, scale_columns).row(false, position) + column / kKvScaleBlock, hd,
                                 scale_columns});
  }
  constexpr float kShare = 1.0f / kSparseBlock;
  uint2 mean;
  mean.x = pack_half2(sum.x * kShare, sum.y * kShare);
  mean.y = pack_half2(sum.z * kShare, sum.w * kShare);
  const uint64_t row = static_cast<uint64_t>(kv_head) * scratch.pooled_blocks + block;
  *reinterpret_cast<uint2*>(scratch.pooled + row * hd + column) = mean;
}

// ---------------------------------------------------------------------------------------------------- block choice

// The blocks a tile may choose from and those it visits anyway.
struct BlockChoice {
  uint32_t visible;      // blocks that hold a visible key
  uint32_t first, last;  // candidates [first, last): before them the first blocks, after them the recent ones
  uint32_t best;         // how many of the candidates to take

  __device__ __forceinline__ BlockChoice(const SparseAttention& sparse, const Segment& segment) {
    const uint32_t end = segment.position + segment.count;
    visible = (end + kSparseBlock - 1) / kSparseBlock;
    const uint32_t begins_in = segment.position / kSparseBlock;
    first = sparse.first;
    last = begins_in > sparse.recent ? begins_in - sparse.recent : 0;
    best = sparse_best_blocks(sparse, visible);
    if (end <= sparse.from || last <= first || last - first <= best) last = first = best = 0;  // everything
  }
};

// Mean keys of the candidates on their way to shared memory, one tile ahead. The ring turns twice over the same tiles.
class PooledRing {
 public:
  __device__ __forceinline__ PooledRing(uint32_t shared, const __half* pooled, uint32_t hd, const BlockChoice& choice)
      : shared_(shared),
        pooled_(pooled),
        hd_(hd),
        last_(choice.last),
        first_tile_(choice.first / kTile.bn),
        tiles_((choice.last + kTile.bn - 1) / kTile.bn - choice.first / kTile.bn) {
    issue();
  }
  __device__ __forceinline__ uint32_t tiles() const { return tiles_; }
  // The first block of tile i.
  __device__ __forceinline__ uint32_t block(uint32_t i) const { return (first_tile_ + i) * kTile.bn; }

  __device__ __forceinline__ uint32_t next() {
    copy_async_wait<0>();
    __syncthreads();
    const uint32_t address = shared_ + (issued_ - 1) % 2 * Layout::kTileBytes;
    if (issued_ < 2 * tiles_) issue();
    return address;
  }

 private:
  __device__ __forceinline__ void issue() {
    const uint32_t first = block(issued_ % tiles_), chunk = threadIdx.x % Layout::kChunks;
    const uint32_t tile = shared_ + issued_ % 2 * Layout::kTileBytes;
#pragma unroll 4
    for (uint32_t row = threadIdx.x / Layout::kChunks; row < kTile.bn; row += kThreads / Layout::kChunks) {
      const bool valid = first + row < last_ && chunk * 8 < hd_;
      copy_async(tile + chunk_offset<kTile.hd>(row, chunk),
                 pooled_ + (valid ? static_cast<uint64_t>(first + row) * hd_ + chunk * 8 : 0), valid);
    }
    copy_async_commit();
    ++issued_;
  }

  uint32_t shared_;
  const __half* pooled_;
  uint32_t hd_, last_, first_tile_, tiles_;
  uint32_t issued_ = 0;
};

using Scores = float[Layout::kRowTiles][Layout::kKeyTiles][4];

// Scores of a tile with log2(e), -infinity outside the candidates.
__device__ __forceinline__ void score_tile(Scores& s, const SharedQueries<kTile>& queries, uint32_t keys,
                                           uint32_t first_block, const BlockChoice& choice, int lane, int warp_n) {
  HalfOperands<kTile>::score(s, queries, keys, lane, warp_n);
  const uint32_t column = first_block + warp_n * Layout::kWarpKeys + lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < Layout::kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < Layout::kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t block = column + n * 8 + i % 2;
        s[r][n][i] = block >= choice.first && block < choice.last ? s[r][n][i] * kLog2E : -INFINITY;
      }
    }
  }
}

// log2 of the sum of 2^score of each row; this thread's share at first, all of it after total().
struct RowSums {
  float largest[Layout::kRowTiles][2], sum[Layout::kRowTiles][2];

  __device__ __forceinline__ RowSums() {
#pragma unroll
    for (int r = 0; r < Layout::kRowTiles; ++r) {
      largest[r][0] = largest[r][1] = -INFINITY;
      sum[r][0] = sum[r][1] = 0.0f;
    }
  }
  __device__ __forceinline__ void merge(int r, int h, float other_largest, float other_sum) {
    const float both = fmaxf(largest[r][h], other_largest);
    if (both == -INFINITY) return;
    sum[r][h] = sum[r][h] * exp2_fast(largest[r][h] - both) + other_sum * exp2_fast(other_largest - both);
    largest[r][h] = both;
  }
  __device__ __forceinline__ void add(const Scores& s) {
#pragma unroll
    for (int r = 0; r < Layout::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float tile_max = -INFINITY, tile_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < Layout::kKeyTiles; ++n) {
          tile_max = fmaxf(tile_max, fmaxf(s[r][n][2 * h], s[r][n][2 * h + 1]));
        }
        if (tile_max == -INFINITY) continue;
#pragma unroll
        for (int n = 0; n < Layout::kKeyTiles; ++n) {
          tile_sum += exp2_fast(s[r][n][2 * h] - tile_max) + exp2_fast(s[r][n][2 * h + 1] - tile_max);
        }
        merge(r, h, tile_max, tile_sum);
      }
    }
  }
  // Over the lanes and warps that share a row, in one order for all. `exchange`: [warps_n][bm] of shared memory.
  __device__ __forceinline__ void total(float2* exchange, int first_row, int lane, int warp_n) {
#pragma unroll
    for (int r = 0; r < Layout::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
          merge(r, h, __shfl_xor_sync(0xffffffffu, largest[r][h], offset),
                __shfl_xor_sync(0xffffffffu, sum[r][h], offset));
        }
        const int row = first_row + r * 16 + h * 8 + lane / 4;
        if (lane % 4 == 0) exchange[warp_n * kTile.bm + row] = make_float2(largest[r][h], sum[r][h]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < Layout::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + r * 16 + h * 8 + lane / 4;
        largest[r][h] = -INFINITY;
        sum[r][h] = 0.0f;
#pragma unroll
        for (int w = 0; w < kTile.warps_n; ++w) {
          const float2 share = exchange[w * kTile.bm + row];
          merge(r, h, share.x, share.y);
        }
      }
    }
  }
};

// worth[block] += the probabilities of all rows; two warps hold different rows of a block, and two sums commute.
__device__ __forceinline__ void add_worth(const Scores& s, const float (&logs)[Layout::kRowTiles][2],
                                          uint32_t first_block, const BlockChoice& choice, float* worth, int lane,
                                          int warp_n) {
#pragma unroll
  for (int n = 0; n < Layout::kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < Layout::kRowTiles; ++r) {
        sum += exp2_fast(s[r][n][i] - logs[r][0]) + exp2_fast(s[r][n][2 + i] - logs[r][1]);
      }
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      const uint32_t block = first_block + warp_n * Layout::kWarpKeys + n * 8 + lane % 4 * 2 + i;
      if (lane < 4 && block >= choice.first && block < choice.last) atomicAdd(worth + block, sum);
    }
  }
}

// Inclusive sums over the threads of the block, from the front.
__device__ __forceinline__ uint32_t scan(uint32_t value, uint32_t* shared) {
  shared[threadIdx.x] = value;
#pragma unroll
  for (uint32_t step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    const uint32_t before = threadIdx.x >= step ? shared[threadIdx.x - step] : 0;
    __syncthreads();
    shared[threadIdx.x] += before;
  }
  __syncthreads();
  const uint32_t sum = shared[threadIdx.x];
  __syncthreads();
  return sum;
}

struct Threshold {
  uint32_t bits;   // of the least worth that is taken
  uint32_t equal;  // how many of those with just this worth are taken
};

// Worths are not negative, so their bits are in their order. Eight bits at a time, from the top.
__device__ __forceinline__ Threshold find_threshold(const float* worth, const BlockChoice& choice, uint32_t* scratch) {
  uint32_t* counts = scratch;                // [kThreads]
  uint32_t* found = scratch + 2 * kThreads;  // bin, and how many are still wanted in it
  uint32_t prefix = 0, wanted = choice.best;
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t block = choice.first + threadIdx.x; block < choice.last; block += kThreads) {
      const uint32_t bits = __float_as_uint(worth[block]);
      if (shift == 24 || bits >> (shift + 8) == prefix) atomicAdd(counts + (bits >> shift & 255), 1u);
    }
    __syncthreads();
    const uint32_t bin = kThreads - 1 - threadIdx.x;  // the scan begins at the largest
    const uint32_t here = counts[bin];
    const uint32_t down_to = scan(here, scratch + kThreads);
    if (down_to >= wanted && down_to - here < wanted) {
      found[0] = bin;
      found[1] = wanted - (down_to - here);
    }
    __syncthreads();
    prefix = prefix << 8 | found[0];
    wanted = found[1];
    __syncthreads();
  }
  return {prefix, wanted};
}

// The chosen candidates in ascending order.
__device__ __forceinline__ void write_best(const float* worth, const BlockChoice& choice, const Threshold& threshold,
                                           uint32_t* scratch, uint16_t* list) {
  const uint32_t share = (choice.last - choice.first + kThreads - 1) / kThreads;
  const uint32_t begin = min(choice.first + threadIdx.x * share, choice.last), end = min(begin + share, choice.last);
  uint32_t above = 0, equal = 0;
  for (uint32_t block = begin; block < end; ++block) {
    above += __float_as_uint(worth[block]) > threshold.bits;
    equal += __float_as_uint(worth[block]) == threshold.bits;
  }
  const uint32_t sums = scan(above << 16 | equal, scratch);
  uint32_t equal_before = (sums & 0xffff) - equal;
  uint32_t place = (sums >> 16) - above + min(equal_before, threshold.equal);
  for (uint32_t block = begin; block < end; ++block) {
    const uint32_t bits = __float_as_uint(worth[block]);
    const bool takes_equal = bits == threshold.bits && equal_before < threshold.equal;
    equal_before += bits == threshold.bits;
    if (bits > threshold.bits || takes_equal) list[place++] = static_cast<uint16_t>(block);
  }
}

__global__ void __launch_bounds__(kThreads, 1) select_blocks_kernel(const __grid_constant__ SparseArguments s) {
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  wait_for_predecessor();
  release_successor();
  const PrefillArguments& a = s.prefill;
  const uint32_t kv_head = blockIdx.x % a.shape.Hkv;
  const uint32_t index = a.tile_count - 1 - blockIdx.x / a.shape.Hkv;
  const Segment segment = a.tiles[index];
  if (segment.count == 0) return;
  const uint64_t place = static_cast<uint64_t>(index) * a.shape.Hkv + kv_head;
  uint16_t* list = s.scratch.blocks + place * s.scratch.list_length;
  const BlockChoice choice(s.sparse, segment);

  // What needs no choice: the first blocks and, after the best, the recent ones.
  for (uint32_t i = threadIdx.x; i < choice.first; i += kThreads) list[i] = static_cast<uint16_t>(i);
  for (uint32_t i = choice.last + threadIdx.x; i < choice.visible; i += kThreads) {
    list[choice.first + choice.best + i - choice.last] = static_cast<uint16_t>(i);
  }
  if (threadIdx.x == 0) s.scratch.counts[place] = choice.first + choice.best + choice.visible - choice.last;
  if (choice.best == 0) return;

  const uint32_t shared = shared_address(shared_memory);
  float* worth = reinterpret_cast<float*>(shared_memory + Layout::kSharedBytes);
  for (uint32_t i = threadIdx.x; i < choice.last; i += kThreads) worth[i] = 0.0f;
  load_query_tile<kTile>(a, segment, kv_head, shared + Layout::kQueryOffset);
  const uint64_t plane = static_cast<uint64_t>(kv_head) * s.scratch.pooled_blocks;
  PooledRing ring(shared, s.scratch.pooled + plane * a.shape.hd, a.shape.hd, choice);

  const int lane = threadIdx.x % 32, warp_n = threadIdx.x / 32 % kTile.warps_n;
  const int first_row = threadIdx.x / 32 / kTile.warps_n * Layout::kRowTiles * 16;
  const SharedQueries<kTile> queries(shared + Layout::kQueryOffset, first_row);
  RowSums sums;
  for (uint32_t i = 0; i < ring.tiles(); ++i) {
    Scores scores;
    score_tile(scores, queries, ring.next(), ring.block(i), choice, lane, warp_n);
    sums.add(scores);
  }
  sums.total(reinterpret_cast<float2*>(shared_memory + Layout::kProbabilityOffset), first_row, lane, warp_n);
  float logs[Layout::kRowTiles][2];
  const uint32_t group = a.shape.H / a.shape.Hkv;
#pragma unroll
  for (int r = 0; r < Layout::kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows beyond the segment have no say.
      const uint32_t row = first_row + r * 16 + h * 8 + lane / 4;
      logs[r][h] = row / group < segment.count ? sums.largest[r][h] + __log2f(sums.sum[r][h]) : INFINITY;
    }
  }
  for (uint32_t i = 0; i < ring.tiles(); ++i) {
    Scores scores;
    score_tile(scores, queries, ring.next(), ring.block(i), choice, lane, warp_n);
    add_worth(scores, logs, ring.block(i), choice, worth, lane, warp_n);
  }
  __syncthreads();
  auto* scratch = reinterpret_cast<uint32_t*>(shared_memory);  // the ring is idle
  const Threshold threshold = find_threshold(worth, choice, scratch);
  write_best(worth, choice, threshold, scratch, list + choice.first);
}

}  // namespace

void launch_pool_keys(const AttentionShape& shape, const KvView& kv, uint32_t sequence, uint32_t blocks,
                      const SparseScratch& scratch, const LaunchConfig& launch) {
  launch_kernel("mean keys", pool_keys_kernel, dim3(blocks, shape.Hkv), dim3(kPoolThreads), 0, launch, shape, kv,
                sequence, scratch);
}

void launch_select_blocks(const SparseArguments& arguments, const LaunchConfig& launch) {
  const uint32_t bytes = Layout::kSharedBytes + arguments.scratch.pooled_blocks * sizeof(float);
  allow_shared_memory(select_blocks_kernel, bytes, "choice of key blocks");
  launch_kernel("choice of key blocks", select_blocks_kernel,
                dim3(arguments.prefill.tile_count * arguments.prefill.shape.Hkv), dim3(kThreads), bytes, launch,
                arguments);
}

}  // namespace carat::cuda
