// Rotation angles, and the step between the QKV product and attention: per-head RMS norm, rotation of half-split pairs,
// K and V into the cache as fp16 or q8_0. One block of 128 threads per head and row; bound by memory (and by launch
// latency in decode). Norms bound every |q|, |k| by sqrt(hd) * max|w| and |v| by sqrt(hd), so fp16 cannot overflow for
// weights the loader accepts.
#include "exec/cuda/kernels/elementwise/rope.h"

#include "exec/cuda/kernels/attention/kv_view.cuh"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kMaxPairsPerThread = 2;  // hd <= 512

__global__ void rope_table_kernel(const uint32_t* positions, const double* inverse_frequency, uint32_t pairs,
                                  float2* table) {
  wait_for_predecessor();
  release_successor();
  for (uint32_t j = threadIdx.x; j < pairs; j += blockDim.x) {
    // Range reduction in double: an fp32 product would be off by 0.008 radians at position 131072.
    const double turns = static_cast<double>(positions[blockIdx.x]) * inverse_frequency[j] * 0.15915494309189535;
    const float angle = static_cast<float>((turns - rint(turns)) * 6.283185307179586);
    float s, c;
    sincosf(angle, &s, &c);
    table[static_cast<uint64_t>(blockIdx.x) * pairs + j] = make_float2(c, s);
  }
}

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

__device__ float block_sum_128(float value, float* scratch) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
  __syncthreads();
  return scratch[0] + scratch[1] + scratch[2] + scratch[3];
}

// Rounds a head in shared memory to q8_0, a warp per 32 values, as exec::round_q8_0 does on the host.
__device__ void store_quantised(const float* values, uint32_t hd, int8_t* quants, __half* scales) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t block = threadIdx.x / 32; block < hd / kKvScaleBlock; block += kThreads / 32) {
    const float value = values[block * kKvScaleBlock + lane];
    float largest = fabsf(value);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const __half scale = __float2half_rn(__fdiv_rn(largest, 127.0f));
    const float inverse = __half2float(scale) == 0.0f ? 0.0f : __frcp_rn(__half2float(scale));
    // A scale rounded down lets the largest value reach more than 127.
    const float level = fminf(fmaxf(rintf(__fmul_rn(value, inverse)), -127.0f), 127.0f);
    quants[block * kKvScaleBlock + lane] = static_cast<int8_t>(level);
    if (lane == 0) scales[block] = scale;
  }
}

// kQuantised: the cache is q8_0. Keys and values then pass through shared memory, since the pairs of a thread lie half
// a head apart and a scale belongs to neighbours.
template <typename T, bool kQuantised>
__global__ void __launch_bounds__(kThreads) qkv_post_kernel(const __grid_constant__ QkvPost job, const T* projections) {
  __shared__ float scratch[4];
  __shared__ float unrounded[kQuantised ? 2 * kThreads * kMaxPairsPerThread : 1];
  wait_for_predecessor();
  release_successor();
  const AttentionShape& shape = job.shape;
  const uint32_t row = blockIdx.y, half = shape.hd / 2;
  // Head index within q | k | v, whichever of them this launch covers.
  uint32_t head = blockIdx.x + (job.only_kv ? shape.H : 0);
  const bool is_q = head < shape.H;
  const bool is_v = head >= shape.H + shape.Hkv;
  uint32_t source_head = is_v && job.v_from_k ? head - shape.Hkv : head;
  if (job.only_kv) source_head -= shape.H;
  const uint32_t source_heads = (job.only_kv ? 0 : shape.H) + (job.only_q ? 0 : (job.v_from_k ? 1 : 2) * shape.Hkv);
  const T* from = projections + (static_cast<uint64_t>(row) * source_heads + source_head) * shape.hd;

  float low[kMaxPairsPerThread], high[kMaxPairsPerThread];
  float squares = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kMaxPairsPerThread; ++i) {
    const uint32_t j = threadIdx.x + i * kThreads;
    low[i] = high[i] = 0.0f;
    if (j < half) {
      low[i] = to_float(from[j]);
      high[i] = to_float(from[j + half]);
      squares += low[i] * low[i] + high[i] * high[i];
    }
  }
  const float factor = rsqrtf(block_sum_128(squares, scratch) / static_cast<float>(shape.hd) + job.eps);

  __half* to = nullptr;
  KvHead cached(shape, 0, 0);  // where a key or value goes
  uint32_t position = 0;
  if (is_q) {
    to = job.q + (static_cast<uint64_t>(row) * shape.H + head) * shape.hd;
  } else {
    const uint32_t kv_head = is_v ? head - shape.H - shape.Hkv : head - shape.H;
    cached = KvHead(shape, job.sequences[row], kv_head);
    position = job.positions[row];
    if constexpr (!kQuantised) to = kv_halves(job.kv, cached, shape.hd).row(is_v, position);
  }
  const float* weight = is_q ? job.q_norm : job.k_norm;
#pragma unroll
  for (uint32_t i = 0; i < kMaxPairsPerThread; ++i) {
    const uint32_t j = threadIdx.x + i * kThreads;
    if (j >= half) continue;
    float a = low[i] * factor, b = high[i] * factor;
    if (!is_v) {
      a *= weight[j];
      b *= weight[j + half];
      if (j < job.pairs) {
        const float2 turn = job.table[static_cast<uint64_t>(row) * job.pairs + j];
        const float rotated = a * turn.x - b * turn.y;
        b = a * turn.y + b * turn.x;
        a = rotated;
      }
    }
    if (kQuantised && !is_q) {
      unrounded[j] = a;
      unrounded[j + half] = b;
    } else {
      to[j] = __float2half_rn(a);
      to[j + half] = __float2half_rn(b);
    }
  }
  if (kQuantised && !is_q) {
    __syncthreads();
    store_quantised(unrounded, shape.hd, kv_quants(job.kv, cached, shape.hd).row(is_v, position),
                    kv_scales(job.kv, cached, kv_scale_columns(shape.hd)).row(is_v, position));
  }
}

template <typename T>
void launch_qkv_post(const QkvPost& job, const T* projections, uint32_t rows, const LaunchConfig& launch) {
  const uint32_t heads = (job.only_kv ? 0 : job.shape.H) + (job.only_q ? 0 : 2 * job.shape.Hkv);
  const auto kernel = job.kv.quantised() ? qkv_post_kernel<T, true> : qkv_post_kernel<T, false>;
  launch_kernel("qkv_post", kernel, dim3(heads, rows), dim3(kThreads), 0, launch, job, projections);
}

}  // namespace

void rope_table(const uint32_t* positions, uint32_t rows, const double* inverse_frequency, uint32_t pairs,
                float2* table, const LaunchConfig& launch) {
  launch_kernel("rope_table", rope_table_kernel, dim3(rows), dim3(kThreads), 0, launch, positions, inverse_frequency,
                pairs, table);
}

void qkv_post(const QkvPost& job, const __nv_bfloat16* projections, uint32_t rows, const LaunchConfig& launch) {
  launch_qkv_post(job, projections, rows, launch);
}
void qkv_post(const QkvPost& job, const float* projections, uint32_t rows, const LaunchConfig& launch) {
  launch_qkv_post(job, projections, rows, launch);
}

}  // namespace carat::cuda
