// Prompt products in e4m3 beside bf16 at the shapes of real models (sm_90): TFLOP/s, and what rounding the activations
// takes besides. Weights are cold: launches take turns over copies that together exceed L2.
// Usage: carat_fp8_bench [rows ...]: 128, 512, 2048 and 4096 by default.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "bench_device.cuh"
#include "exec/cuda/kernels/gemm/fp8_rows.h"
#include "exec/cuda/kernels/gemm/gemm.h"

namespace carat::cuda {
namespace {

struct Shape {
  const char* name;
  uint32_t n, k;
};
constexpr Shape kShapes[] = {{"E4B qkv", 3072, 2560},   {"E4B o", 2560, 2048},        {"E4B gate+up", 20480, 2560},
                             {"E4B down", 2560, 10240}, {"12B qkv", 8192, 3840},      {"12B gate+up", 30720, 3840},
                             {"12B down", 3840, 15360}, {"31B gate+up", 43008, 5376}, {"31B down", 5376, 21504}};

// e4m3 of either sign in 2^-3 ... 2^-2: no NaN among them.
constexpr Pattern kE4M3{0x87878787u, 0x20202020u};

void time_shape(const Shape& shape, uint32_t rows, Gemm& gemm, const Stream& stream) {
  const uint64_t weights = uint64_t{shape.n} * shape.k, inputs = uint64_t{rows} * shape.k;
  const uint32_t copies = copies_of(weights);
  const auto out = filled<__nv_bfloat16>(uint64_t{rows} * shape.n, kBfloats);
  const auto a = filled<__nv_bfloat16>(inputs, kBfloats);
  const auto rounded = filled<uint8_t>(inputs, kE4M3);
  const auto scales = filled<float>(std::max(rows, shape.n), kFloats);
  const auto w16 = filled<__nv_bfloat16>(weights * copies, kBfloats);
  const auto w8 = filled<uint8_t>(weights * copies, kE4M3);
  const double bf16 = median_ms(stream, 2 * copies, [&](uint32_t i) {
    gemm.run(a.data(), w16.data() + i % copies * weights, out.data(), rows, shape.n, shape.k, stream.get());
  });
  const double fp8 = median_ms(stream, 2 * copies, [&](uint32_t i) {
    gemm.run(Fp8Matrix{rounded.data(), scales.data()}, Fp8Matrix{w8.data() + i % copies * weights, scales.data()},
             out.data(), rows, shape.n, shape.k, stream.get());
  });
  const LaunchConfig launch{stream.get(), true};
  const double rounding = median_ms(stream, 8, [&](uint32_t) {
    round_fp8(a.data(), rows, shape.k, {rounded.data(), scales.data()}, launch);
  });
  const double operations = 2.0 * rows * static_cast<double>(weights);
  std::printf("%-12s %5u  %8.1f us %5.0f  %8.1f us %5.0f  %7.1f us\n", shape.name, rows, 1e3 * bf16,
              operations / bf16 * 1e-9, 1e3 * fp8, operations / fp8 * 1e-9, 1e3 * rounding);
}

void run(const std::vector<uint32_t>& rows) {
  Gemm gemm(size_t{64} << 20);
  const Stream stream;
  std::printf("%-12s %5s  %17s  %17s  %10s\n", "product", "rows", "bf16, TFLOP/s", "e4m3, TFLOP/s", "rounding");
  for (const Shape& shape : kShapes) {
    for (const uint32_t count : rows) time_shape(shape, count, gemm, stream);
  }
}

}  // namespace
}  // namespace carat::cuda

int main(int argc, char** argv) {
  try {
    std::vector<uint32_t> rows;
    for (int i = 1; i < argc; ++i) rows.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
    carat::cuda::run(rows.empty() ? std::vector<uint32_t>{128, 512, 2048, 4096} : rows);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "carat_fp8_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
