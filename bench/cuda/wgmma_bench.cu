// The warpgroup product (sm_90a) at the shapes of real models: dense beside cuBLASLt on bf16 weights, and grouped by
// expert beside the mma.sync kernel. Weights are cold, launches run as one graph.
// Usage: carat_wgmma_bench [matrix TFLOP/s [widths]]: the card's ceiling (H200 by default); with "widths" every tile
// width instead of the chosen one, Q4_0 only.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench_device.cuh"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"
#include "exec/cuda/kernels/moe/moe.h"

namespace carat::cuda {
namespace {

struct Bench {
  double tflops;
  bool widths;
  uint32_t sm_count = 0;
  Stream stream;
  DeviceMemory pool{kPoolBytes, "benchmark weights"};
  LaunchConfig launch_config() const { return {stream.get(), true}; }
};

struct NamedPacking {
  const char* name;
  Packing packing;
};
constexpr NamedPacking kPackings[] = {
    {"bf16", Packing::kBF16}, {"Q8_0", Packing::kQ8}, {"Q4_0", Packing::kQ4}, {"Q4_K", Packing::kQ4K}};

// `matrices` matrices of [rows, cols] one after the other, several times, so that no launch finds its weights in L2.
struct Weights {
  std::vector<std::vector<PackedView>> copies;
  uint64_t bytes = 0;
  Weights(const Bench& bench, Packing packing, uint32_t matrices, uint32_t rows, uint32_t cols) {
    const uint64_t each = packed_matrix_bytes(packing, rows, cols);
    bytes = each * matrices;
    const uint32_t count = std::min(copies_of(bytes), 16u);
    char* at = bench.pool.as<char>();
    for (uint32_t c = 0; c < count; ++c) {
      copies.emplace_back();
      for (uint32_t m = 0; m < matrices; ++m, at += each) {
        copies.back().push_back(random_matrix(packing, rows, cols, at));
        if (packing == Packing::kBF16) fill(at, each, kBfloats);
      }
    }
    check(cudaDeviceSynchronize(), "benchmark input");
  }
};

void print(const Bench& bench, double ms, double operations, uint64_t bytes) {
  const double tflops = operations / ms * 1e-9;
  std::printf(" | %7.1f %4.0f %3.0f%%", ms * 1e3, tflops, 100.0 * tflops / bench.tflops);
  if (bytes != 0) std::printf(" %4.0f", static_cast<double>(bytes) / ms * 1e-6);
}

// 26B-A4B: 128 experts, 8 used, gate and up of 704 rows over 2816 columns (with GELU), down of 2816 over 704.
struct Experts {
  static constexpr uint32_t kExperts = 128, kUsed = 8, kF = 704, kD = 2816;
  const Bench& bench;
  uint32_t tokens, total = tokens * kUsed;
  bool down;
  uint32_t k = down ? kF : kD, n = down ? kD : 2 * kF;
  DeviceArray<__nv_bfloat16> a = filled<__nv_bfloat16>(uint64_t{total} * k, kBfloats);
  DeviceArray<__nv_bfloat16> out{uint64_t{total} * n, "benchmark output"},
      act{uint64_t{total} * kF, "benchmark output"};
  DeviceArray<uint32_t> offsets = to_device(random_offsets(kExperts, total)), source = to_device(rows());
  double operations = 2.0 * total * n * k;

  std::vector<uint32_t> rows() const {
    std::vector<uint32_t> list(total);
    for (uint32_t i = 0; i < total; ++i) list[i] = static_cast<uint32_t>(i * uint64_t{2654435761u} % tokens);
    return list;
  }
  WgmmaGemm product(const PackedView& weights) const {
    WgmmaGemm p;
    if (down) {
      p.parts = {{.weights = weights, .rows = kD, .stride = kD}};
    } else {
      p.parts = {{.weights = weights, .rows = kF, .stride = 2 * kF},
                 {.weights = weights, .rows = kF, .stride = 2 * kF, .offset = kF}};
      p.source = source.data();
    }
    p.geglu = !down;
    p.a = a.data();
    p.offsets = offsets.data();
    p.groups = kExperts;
    p.total = total;
    p.out = down ? out.data() : act.data();
    return p;
  }
  void run_wgmma(Packing packing, uint32_t width) const {
    const Weights weights(bench, packing, 1, kExperts * n, k);
    const double ms = median_ms(bench.stream, std::max<uint32_t>(4, weights.copies.size()), [&](uint32_t i) {
      wgmma_gemm(product(weights.copies[i % weights.copies.size()][0]), bench.sm_count, bench.launch_config(), width);
    });
    print(bench, ms, operations, weights.bytes);
  }
  // The mma.sync kernel on bf16 copies, and the GELU kernel it needs.
  void run_mma() const {
    fill(bench.pool.data(), uint64_t{kExperts} * n * k * 2, kBfloats);
    const double ms = median_ms(bench.stream, 4, [&](uint32_t) {
      grouped_gemm(a.data(), down ? nullptr : source.data(), bench.pool.as<__nv_bfloat16>(), offsets.data(), kExperts,
                   total, n, k, out.data(), bench.launch_config());
      if (!down) geglu(out.data(), total, kF, act.data(), bench.launch_config());
    });
    print(bench, ms, operations, uint64_t{kExperts} * n * k * 2);
  }
};

void bench_experts(const Bench& bench) {
  std::printf("experts of 26B-A4B: us, TFLOP/s, %% of %.0f, weights GB/s\n%-15s", bench.tflops, "");
  if (!bench.widths) {
    std::printf(" | %-21s", "mma.sync bf16");
    for (const NamedPacking& p : kPackings) std::printf(" | %-21s", p.name);
  } else {
    for (const uint32_t width : kWgmmaWidths) std::printf(" | %-21u", width);
  }
  for (const uint32_t tokens : {512u, 2048u, 8192u}) {
    for (const bool down : {false, true}) {
      const Experts experts{.bench = bench, .tokens = tokens, .down = down};
      std::printf("\n%5u %-9s", tokens, down ? "down" : "gate+up");
      if (bench.widths) {
        for (const uint32_t width : kWgmmaWidths) experts.run_wgmma(Packing::kQ4, width);
        continue;
      }
      experts.run_mma();
      for (const NamedPacking& p : kPackings) experts.run_wgmma(p.packing, 0);
    }
  }
  std::printf("\n");
}

// What surrounds the expert products of 26B-A4B.
void bench_sorting(const Bench& bench) {
  std::printf("\n%-15s | sort us | combine us, GB/s\n", "experts");
  for (const uint32_t tokens : {512u, 2048u, 4096u}) {
    const uint32_t total = tokens * Experts::kUsed;
    std::vector<uint32_t> list(total);
    for (uint32_t i = 0; i < total; ++i) list[i] = static_cast<uint32_t>(i * uint64_t{2654435761u} % Experts::kExperts);
    const auto ids = to_device(list);
    const DeviceArray<uint32_t> offsets(Experts::kExperts + 1, "benchmark output"), source(total, "benchmark output"),
        place(total, "benchmark output");
    const auto weights = filled<float>(total, kFloats);
    const auto sorted = filled<__nv_bfloat16>(uint64_t{total} * Experts::kD, kBfloats);
    const DeviceArray<__nv_bfloat16> out(uint64_t{tokens} * Experts::kD, "benchmark output");
    const double sort = median_ms(bench.stream, 8, [&](uint32_t) {
      moe_sort(ids.data(), tokens, Experts::kUsed, Experts::kExperts, offsets.data(), source.data(), place.data(),
               bench.launch_config());
    });
    const double combine = median_ms(bench.stream, 8, [&](uint32_t) {
      moe_combine(sorted.data(), place.data(), weights.data(), tokens, Experts::kUsed, Experts::kD, out.data(),
                  bench.launch_config());
    });
    std::printf("%5u %-9s | %7.1f | %7.1f %5.0f\n", tokens, "tokens", sort * 1e3, combine * 1e3,
                static_cast<double>(sorted.bytes() + out.bytes()) / combine * 1e-6);
  }
}

struct DenseShape {
  const char* name;
  uint32_t matrices, n, k;  // as many matrices of n rows
};
constexpr DenseShape kDense[] = {
    {"E4B qkv", 1, 3072, 2560},   {"E4B o", 1, 2560, 2048},        {"E4B gate+up", 2, 10240, 2560},
    {"E4B down", 1, 2560, 10240}, {"12B gate+up", 2, 15360, 3840}, {"12B down", 1, 3840, 15360},
    {"31B qkv", 1, 16384, 5376},  {"31B gate+up", 2, 21504, 5376}, {"31B down", 1, 5376, 21504}};

void run_dense(const Bench& bench, const DenseShape& shape, uint32_t rows, Packing packing, uint32_t width,
               const __nv_bfloat16* a, __nv_bfloat16* out) {
  const Weights weights(bench, packing, shape.matrices, shape.n, shape.k);
  const double ms = median_ms(bench.stream, std::max<uint32_t>(4, weights.copies.size()), [&](uint32_t i) {
    WgmmaGemm product;
    for (const PackedView& view : weights.copies[i % weights.copies.size()]) {
      product.parts.push_back({.weights = view, .rows = view.rows});
    }
    product.geglu = shape.matrices == 2;
    product.a = a;
    product.total = rows;
    product.out = out;
    wgmma_gemm(product, bench.sm_count, bench.launch_config(), width);
  });
  print(bench, ms, 2.0 * rows * shape.n * shape.matrices * shape.k, 0);
}

void bench_dense(const Bench& bench) {
  std::printf("\ndense: us, TFLOP/s, %% of %.0f; gate+up with GELU\n%-17s", bench.tflops, "");
  if (!bench.widths) {
    std::printf(" | %-16s", "cuBLASLt bf16");
    for (const NamedPacking& p : kPackings) std::printf(" | %-16s", p.name);
  } else {
    for (const uint32_t width : kWgmmaWidths) std::printf(" | %-16u", width);
  }
  Gemm gemm(size_t{64} << 20);
  for (const DenseShape& shape : kDense) {
    for (const uint32_t rows : {512u, 2048u}) {
      const uint32_t n = shape.n * shape.matrices;
      const auto a = filled<__nv_bfloat16>(uint64_t{rows} * shape.k, kBfloats);
      const DeviceArray<__nv_bfloat16> out(uint64_t{rows} * n, "benchmark output"),
          act(uint64_t{rows} * shape.n, "benchmark output");
      std::printf("\n%4u %-12s", rows, shape.name);
      if (bench.widths) {
        for (const uint32_t width : kWgmmaWidths)
          run_dense(bench, shape, rows, Packing::kQ4, width, a.data(), out.data());
        continue;
      }
      const uint64_t bytes = uint64_t{n} * shape.k * 2;
      const uint32_t copies = std::min(copies_of(bytes), 16u);
      fill(bench.pool.data(), bytes * copies, kBfloats);
      const auto weights = [&](uint32_t i) { return bench.pool.as<__nv_bfloat16>() + i % copies * (bytes / 2); };
      gemm.tune(a.data(), weights(0), out.data(), rows, n, shape.k, bench.stream.get());
      const double ms = median_ms(bench.stream, std::max(4u, copies), [&](uint32_t i) {
        gemm.run(a.data(), weights(i), out.data(), rows, n, shape.k, bench.stream.get());
        if (shape.matrices == 2) geglu(out.data(), rows, shape.n, act.data(), bench.launch_config());
      });
      print(bench, ms, 2.0 * rows * n * shape.k, 0);
      for (const NamedPacking& p : kPackings) run_dense(bench, shape, rows, p.packing, 0, a.data(), out.data());
    }
  }
  std::printf("\n");
}

}  // namespace
}  // namespace carat::cuda

int main(int count, char** arguments) {
  using namespace carat::cuda;
  const double tflops = count > 1 ? std::atof(arguments[1]) : 730.0;
  const bool widths = count > 2 && std::strcmp(arguments[2], "widths") == 0;
  if (!(tflops > 0.0) || (count > 2 && !widths)) {
    std::fprintf(stderr, "usage: carat_wgmma_bench [matrix TFLOP/s [widths]]\n");
    return 2;
  }
  try {
    if (!wgmma_available()) {
      std::fprintf(stderr, "carat_wgmma_bench: needs a GPU of compute capability 9.0 and a build for sm_90a\n");
      return 1;
    }
    Bench bench{.tflops = tflops, .widths = widths};
    int value = 0;
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    bench.sm_count = static_cast<uint32_t>(value);
    bench_experts(bench);
    if (!widths) bench_sorting(bench);
    bench_dense(bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "carat_wgmma_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
