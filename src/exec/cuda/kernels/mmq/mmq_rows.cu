// What rounds activations for mmq: the norms, GEGLU and the other kernels that make them do it as they write, so that
// each is rounded once however many products read it. Bound by memory.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/packings.cuh"
#include "exec/cuda/kernels/mmq/mmq.h"

namespace carat::cuda {
namespace {

// The next float of at most 15 significant bits, for which the products of mmq.cuh are exact. Infinity and NaN stay
// what they are, so that a broken activation shows in every result.
__device__ __forceinline__ float round_up_to_15_bits(float scale) {
  constexpr uint32_t kDropped = (1u << 9) - 1;
  if (!(scale < __int_as_float(0x7f800000))) return scale;
  return __uint_as_float((__float_as_uint(scale) + kDropped) & ~kDropped);
}

template <int kBytes>
struct Row {
  int8_t* quants;
  float* scales;  // of block 0; each block is 16 further
  float* sums;
  __device__ Row(const MmqRows& rows, uint32_t row, uint32_t chunks) {
    const uint64_t first = static_cast<uint64_t>(row / 16) * chunks * 64 + mmq_scale_place(row);
    quants = rows.quants + static_cast<uint64_t>(row) * chunks * (kMmqChunk * kBytes);
    scales = rows.scales + first;
    sums = rows.sums + first;
  }

  // Rounds four of 32 neighbouring columns held by eight neighbouring threads. Called by whole warps.
  __device__ __forceinline__ void store(const float4& v, uint32_t column) const {
    constexpr float kMost = kBytes == 1 ? 127.0f : kLevels;
    // Below it the reciprocal of the scale overflows. Such values are nothing beside any other activation.
    constexpr float kLeast = 1e-30f;
    float largest = max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
#pragma unroll
    for (int lane = 1; lane < 8; lane <<= 1) {
      largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
    }
    const float scale = largest < kLeast ? 0.0f : round_up_to_15_bits(largest * (1.0f / kMost));
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const int a = __float2int_rn(v.x * inverse), b = __float2int_rn(v.y * inverse);
    const int c = __float2int_rn(v.z * inverse), d = __float2int_rn(v.w * inverse);
    int sum = a + b + c + d;
#pragma unroll
    for (int lane = 1; lane < 8; lane <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    int8_t* to = quants + column / kMmqChunk * (kMmqChunk * kBytes) + column % kMmqChunk;
    if constexpr (kBytes == 1) {
      *reinterpret_cast<uint32_t*>(to) = pack_bytes(a, b, c, d);
    } else {
      const int ha = high_part(a), hb = high_part(b), hc = high_part(c), hd = high_part(d);
      *reinterpret_cast<uint32_t*>(to) = pack_bytes(ha, hb, hc, hd);
      *reinterpret_cast<uint32_t*>(to + kMmqChunk) = pack_bytes(a - 128 * ha, b - 128 * hb, c - 128 * hc, d - 128 * hd);
    }
    if (column % 32 == 0) {
      scales[column / 32 * 16] = scale;
      sums[column / 32 * 16] = scale * static_cast<float>(sum);
    }
  }
};

template <int kPieces, int kBytes>
__global__ void __launch_bounds__(kRowThreads)
    residual_norm_mmq_kernel(const __grid_constant__ ResidualNormOf<__nv_bfloat16> residual, const MmqRows out) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ float scratch[kSumScratch];
  wait_for_predecessor();
  release_successor();
  residual_norm_pieces<kPieces>(residual, blockIdx.x, row_memory, scratch);
  const uint32_t chunks = mmq_chunks(residual.d);
  const Row<kBytes> row(out, blockIdx.x, chunks);
  // A thread reads back what it wrote itself.
  for (uint32_t c = 4 * threadIdx.x; c < chunks * kMmqChunk; c += kSlab) row.store(load4(row_memory, c, residual.d), c);
}

// Where the values of the element-wise kernels come from: at(row, column) gives four of them, zero beyond the width.
struct GegluSource {
  const __nv_bfloat16* gate_up;
  uint32_t cols;
  __device__ float4 at(uint64_t row, uint32_t column) const {
    const float4 g = load4(gate_up + row * 2 * cols, column, cols);
    const float4 u = load4(gate_up + row * 2 * cols + cols, column, cols);
    return make_float4(gelu(g.x) * u.x, gelu(g.y) * u.y, gelu(g.z) * u.z, gelu(g.w) * u.w);
  }
};

struct GeluTimesSource {
  const __nv_bfloat16* gate;
  const float* factors;
  uint32_t leading, cols;
  __device__ float4 at(uint64_t row, uint32_t column) const {
    const float4 g = load4(gate + row * cols, column, cols);
    const float* f = factors + row * leading;
    const auto factor = [&](uint32_t c) { return c < cols ? f[c] : 0.0f; };
    return make_float4(gelu(g.x) * factor(column), gelu(g.y) * factor(column + 1), gelu(g.z) * factor(column + 2),
                       gelu(g.w) * factor(column + 3));
  }
};

struct PlainSource {
  const __nv_bfloat16* values;
  uint32_t cols;
  __device__ float4 at(uint64_t row, uint32_t column) const { return load4(values + row * cols, column, cols); }
};

template <int kBytes, typename Source>
__global__ void __launch_bounds__(kRowThreads) quantise_mmq_kernel(const Source source, const MmqRows out) {
  wait_for_predecessor();
  release_successor();
  const uint32_t chunks = mmq_chunks(source.cols), column = blockIdx.y * kSlab + 4 * threadIdx.x;
  if (column >= chunks * kMmqChunk) return;  // whole warps: a warp's columns are one chunk
  Row<kBytes>(out, blockIdx.x, chunks).store(source.at(blockIdx.x, column), column);
}

template <typename Source>
void quantise(const char* name, const Source& source, uint32_t rows, const MmqRows& out, const LaunchConfig& launch) {
  const dim3 grid(rows, (mmq_chunks(source.cols) * kMmqChunk + kSlab - 1) / kSlab);
  const auto kernel =
      out.activations == MmqActivations::kInt8 ? quantise_mmq_kernel<1, Source> : quantise_mmq_kernel<2, Source>;
  launch_kernel(name, kernel, grid, dim3(kRowThreads), 0, launch, source, out);
}

}  // namespace

void residual_norm_mmq(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, const MmqRows& out,
                       const LaunchConfig& launch) {
  const size_t shared_bytes = (residual.d + 3) / 4 * 4 * sizeof(float);
  with_row_pieces(residual.d, [&](auto pieces) {
    const auto kernel = out.activations == MmqActivations::kInt8 ? residual_norm_mmq_kernel<pieces(), 1>
                                                                 : residual_norm_mmq_kernel<pieces(), 2>;
    launch_kernel("residual_norm_mmq", kernel, dim3(rows), dim3(kRowThreads), shared_bytes, launch, residual, out);
  });
}

void geglu_mmq(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, const MmqRows& out,
               const LaunchConfig& launch) {
  quantise("geglu_mmq", GegluSource{gate_up, F}, rows, out, launch);
}

void gelu_times_mmq(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t rows, uint32_t P,
                    const MmqRows& out, const LaunchConfig& launch) {
  quantise("gelu_times_mmq", GeluTimesSource{gate, factors, leading, P}, rows, out, launch);
}

void quantise_mmq(const __nv_bfloat16* values, uint32_t rows, uint32_t cols, const MmqRows& out,
                  const LaunchConfig& launch) {
  quantise("quantise_mmq", PlainSource{values, cols}, rows, out, launch);
}

}  // namespace carat::cuda
