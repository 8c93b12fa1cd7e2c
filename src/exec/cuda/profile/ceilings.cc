#include "exec/cuda/profile/ceilings.h"

#include <algorithm>
#include <limits>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/elementwise/probe.h"
#include "exec/cuda/kernels/gemm/gemm.h"

namespace carat::cuda {

namespace {

constexpr int kRuns = 5;

// Seconds of the fastest of a few runs of `work` on the stream, after one to warm up.
template <typename WorkOnStream>
double fastest(const Stream& stream, WorkOnStream work) {
  double best = std::numeric_limits<double>::max();
  work();
  const Event start(true), stop(true);
  for (int run = 0; run < kRuns; ++run) {
    start.record(stream.get());
    work();
    stop.record(stream.get());
    stop.synchronise();
    best = std::min(best, 1e-3 * static_cast<double>(stop.since(start)));
  }
  return best;
}

double read_ceiling(const GpuFacts& gpu, const Stream& stream) {
  constexpr uint64_t kWanted = uint64_t{1} << 30, kUnit = uint64_t{1} << 20;
  const uint64_t bytes = std::max(kUnit, std::min(kWanted, gpu.free_bytes / 4) / kUnit * kUnit);
  const DeviceMemory data(bytes, "the bandwidth probe");
  const DeviceArray<uint32_t> sink(1, "the bandwidth probe");
  fill_probe(data.data(), bytes, stream.get());
  const double seconds =
      fastest(stream, [&] { read_probe(data.data(), bytes, gpu.sm_count, sink.data(), stream.get()); });
  return static_cast<double>(bytes) / seconds;
}

double product_ceiling(const GpuFacts& gpu, const Stream& stream) {
  constexpr size_t kWorkspace = size_t{32} << 20;
  const auto bytes_of = [](uint64_t n) { return 3 * n * n * 2 + kWorkspace; };
  uint32_t n = 8192;
  while (n > 1024 && bytes_of(n) > gpu.free_bytes / 2) n /= 2;
  const uint64_t matrix_bytes = uint64_t{n} * n * 2;
  const DeviceMemory a(matrix_bytes, "the product probe"), w(matrix_bytes, "the product probe");
  const DeviceMemory out(matrix_bytes, "the product probe");
  fill_probe(a.data(), matrix_bytes, stream.get());
  fill_probe(w.data(), matrix_bytes, stream.get());
  Gemm gemm(kWorkspace);
  gemm.tune(a.as<__nv_bfloat16>(), w.as<__nv_bfloat16>(), out.as<__nv_bfloat16>(), n, n, n, stream.get());
  const double seconds = fastest(stream, [&] {
    gemm.run(a.as<__nv_bfloat16>(), w.as<__nv_bfloat16>(), out.as<__nv_bfloat16>(), n, n, n, stream.get());
  });
  return 2.0 * n * n * n / seconds;
}

}  // namespace

exec::ProfileCeilings measure_ceilings(const GpuFacts& gpu) {
  const Stream stream;
  return {.bytes_per_second = read_ceiling(gpu, stream), .flops_per_second = product_ceiling(gpu, stream)};
}

}  // namespace carat::cuda
