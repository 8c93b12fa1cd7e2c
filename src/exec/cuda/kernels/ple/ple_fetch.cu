// Rows of the per-layer-embedding table over the bus, as they are packed. Bound by the bus: 16 bytes a lane, so that a
// warp asks for 512 neighbouring bytes at a time, and all of a row's pieces are on their way together.
#include <stdexcept>

#include "exec/cuda/kernels/ple/ple_fetch.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kFetchThreads = 256;

// Row `from` of a plane with row_bytes a row to row `to`, the first `bytes` of it.
template <typename Piece>
__device__ __forceinline__ void copy_row(const void* source, const void* target, uint64_t row_bytes, uint64_t from,
                                         uint64_t to, uint32_t bytes) {
  const auto* pieces = reinterpret_cast<const Piece*>(static_cast<const char*>(source) + from * row_bytes);
  auto* out = reinterpret_cast<Piece*>(static_cast<char*>(const_cast<void*>(target)) + to * row_bytes);
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < bytes / sizeof(Piece); i += kFetchThreads) out[i] = pieces[i];
}

// One block a row.
__global__ void __launch_bounds__(kFetchThreads)
    fetch_ple_rows_kernel(const __grid_constant__ PackedView table, const PleFetch* fetches, uint32_t steps,
                          const __grid_constant__ PackedView cache) {
  wait_for_predecessor();
  release_successor();
  const PleFetch fetch = fetches[blockIdx.x];
  if (fetch.token < 0) return;
  const PackedBytes bytes = packed_bytes(table.packing);
  const auto from = static_cast<uint64_t>(fetch.token);
  const auto copy = [&]<typename Piece>(const void* source, const void* target, uint32_t step_bytes, Piece) {
    copy_row<Piece>(source, target, uint64_t{table.steps} * step_bytes, from, fetch.place, steps * step_bytes);
  };
  copy(table.quants, cache.quants, bytes.quants, uint4{});
  if (bytes.high > 0) copy(table.high, cache.high, bytes.high, uint4{});
  if (bytes.scales > 0) copy(table.scales, cache.scales, bytes.scales, uint4{});
  if (bytes.super > 0) copy(table.super, cache.super, bytes.super, uint16_t{});  // two bytes a step: not aligned
}

}  // namespace

void fetch_ple_rows(const PackedView& table, const PleFetch* fetches, uint32_t count, uint32_t cols,
                    const PackedView& cache, const LaunchConfig& launch) {
  if (table.packing != cache.packing || table.steps != cache.steps || cols > table.cols) {
    throw std::logic_error("internal check failed: fetch_ple_rows shape");
  }
  launch_kernel("fetch_ple_rows", fetch_ple_rows_kernel, dim3(count), dim3(kFetchThreads), 0, launch, table, fetches,
                steps_of(cols), cache);
}

}  // namespace carat::cuda
