// log(sum(exp(logit))) of rows of logits, for exact log-probabilities; launched only when somebody asks for them.
//
// kLogSumParts blocks share a row. Each finds the largest logit m of its part, then adds exp(logit - m), and the host
// joins the parts. No block waits for another and sums are added in a fixed order, so a row's result is the same bits
// whatever other rows there are. Bound by reading the logits: once from L2 or memory, once more from the L1.
//
// | shared variable | who writes     | who reads   | ordered by    | used again |
// |-----------------|----------------|-------------|---------------|------------|
// | largest[w]      | lane 0, warp w | all threads | __syncthreads | never      |
// | sums[w]         | lane 0, warp w | thread 0    | __syncthreads | never      |
#include "exec/cuda/kernels/select/log_sum_exp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/cuda/device/launch.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads)
    log_sum_parts_kernel(const float* logits, uint32_t V, uint32_t part_columns, LogSumPart* parts) {
  __shared__ float largest[kWarps];
  __shared__ double sums[kWarps];
  wait_for_predecessor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* row = logits + static_cast<uint64_t>(blockIdx.y) * V;
  const uint32_t begin = min(blockIdx.x * part_columns, V), end = min(begin + part_columns, V);

  float most = -INFINITY;
  for (uint32_t c = begin + threadIdx.x; c < end; c += kThreads) most = fmaxf(most, row[c]);
  for (uint32_t offset = 16; offset > 0; offset >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
  if (lane == 0) largest[warp] = most;
  __syncthreads();
  for (uint32_t w = 0; w < kWarps; ++w) most = fmaxf(most, largest[w]);

  double sum = 0.0;
  for (uint32_t c = begin + threadIdx.x; c < end; c += kThreads) {
    if (row[c] != -INFINITY) sum += static_cast<double>(expf(row[c] - most));  // minus infinity minus itself is NaN
  }
  for (uint32_t offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0.0;
  for (uint32_t w = 0; w < kWarps; ++w) total += sums[w];
  parts[static_cast<uint64_t>(blockIdx.y) * kLogSumParts + blockIdx.x] = {total, most, 0};
}

}  // namespace

void log_sum_parts(const float* logits, uint32_t rows, uint32_t V, LogSumPart* parts, const LaunchConfig& launch) {
  const uint32_t part_columns = (V + kLogSumParts - 1) / kLogSumParts;
  launch_kernel("log_sum_parts", log_sum_parts_kernel, dim3(kLogSumParts, rows), dim3(kThreads), 0, launch, logits, V,
                part_columns, parts);
}

double join_log_sums(std::span<const LogSumPart> parts) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const LogSumPart& part : parts) largest = std::max(largest, static_cast<double>(part.largest));
  double sum = 0.0;
  for (const LogSumPart& part : parts) {
    if (part.sum != 0.0) sum += part.sum * std::exp(part.largest - largest);
  }
  return sum == 0.0 ? -std::numeric_limits<double>::infinity() : largest + std::log(sum);
}

}  // namespace carat::cuda
