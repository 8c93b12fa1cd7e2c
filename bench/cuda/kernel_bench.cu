// Matrix products on the GPU at the shapes of real models: GB/s of matrix-vector products (decode), TFLOP/s of grouped
// and plain matrix products (prompts), and their share of what the card can do.
// Usage: carat_kernel_bench [rows [memory GB/s [matrix TFLOP/s]]]: activation rows of the matrix-vector products, and
// the ceilings measured on the card (H200 by default).
//
// Launches take turns over copies of the weights that together exceed L2, and run as one graph, so that neither the
// cache nor launch overhead flatters or hides a kernel. Counted are the bytes of the packed weights, and two operations
// per weight and row.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <vector>

#include "bench_device.cuh"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/kernels/gemv/gemv.h"
#include "exec/cuda/kernels/moe/moe.h"

namespace carat::cuda {
namespace {

struct Bench {
  uint32_t rows;
  double gbs;     // ceiling of reading memory
  double tflops;  // ceiling of bf16 matrix products: the vendor's library at its best
  uint32_t sm_count = 0, shared_memory = 0;
  bool overlap = false;
  Stream stream;
  DeviceMemory pool{kPoolBytes, "benchmark weights"};
};

// ------------------------------------------------------------------------------------------- matrix-vector products

// Where a product of a decode step stands: it gets rounded activations (from a norm or from GEGLU) or plain floats, and
// stores its results, or makes them the rounded input of the next product, or soft-caps them.
enum class Role { kNormed, kPlain, kGeglu, kHead };

struct GemvShape {
  const char* name;
  uint32_t cols;
  std::vector<uint32_t> outputs;  // of each part
  Role role;
};

const std::vector<GemvShape>& gemv_shapes() {
  static const std::vector<GemvShape> shapes = {
      {"E4B qkv", 2560, {2048, 512, 512}, Role::kNormed},
      {"E4B o", 2048, {2560}, Role::kPlain},
      {"E4B gate+up", 2560, {10240, 10240}, Role::kGeglu},
      {"E4B down", 10240, {2560}, Role::kNormed},
      {"E4B inp_gate", 2560, {256}, Role::kNormed},
      {"E4B proj", 256, {2560}, Role::kPlain},
      {"E4B head", 2560, {262144}, Role::kHead},
      {"12B qkv", 3840, {4096, 2048, 2048}, Role::kNormed},
      {"12B o", 4096, {3840}, Role::kPlain},
      {"12B gate+up", 3840, {15360, 15360}, Role::kGeglu},
      {"12B down", 15360, {3840}, Role::kNormed},
      {"12B head", 3840, {262144}, Role::kHead},
      {"31B qkv", 5376, {8192, 4096, 4096}, Role::kNormed},
      {"31B o", 8192, {5376}, Role::kPlain},
      {"31B gate+up", 5376, {21504, 21504}, Role::kGeglu},
      {"31B down", 21504, {5376}, Role::kNormed},
      {"31B head", 5376, {262144}, Role::kHead},
  };
  return shapes;
}

struct NamedPacking {
  const char* name;
  Packing packing;
};
constexpr NamedPacking kPackings[] = {
    {"Q8_0", Packing::kQ8}, {"Q4_0", Packing::kQ4}, {"Q4_K", Packing::kQ4K}, {"Q6_K", Packing::kQ6K}};

// Activations and results, large enough for every shape.
struct Activations {
  static constexpr uint64_t kWidth = 21504, kOutputs = 262144;
  DeviceArray<float> x = filled<float>(kGemvRows * kWidth, kFloats);
  DeviceArray<uint32_t> words = filled<uint32_t>(kGemvRows * kWidth / kStep * kStepWords, kAnyBits);
  DeviceArray<BlockMeta> meta{kGemvRows * kWidth / 32, "benchmark input"};
  DeviceArray<uint32_t> act_words{kGemvRows * kWidth / kStep * kStepWords, "benchmark output"};
  DeviceArray<BlockMeta> act_meta{kGemvRows * kWidth / 32, "benchmark output"};
  DeviceArray<float> out{kGemvRows * kOutputs, "benchmark output"};
  DeviceArray<uint32_t> non_finite{kGemvRows, "benchmark output"};

  Activations() {
    const std::vector<BlockMeta> blocks(meta.size(), BlockMeta{{0.0001f, 0.0002f}, {10000, -5000}});
    check(cudaMemcpy(meta.data(), blocks.data(), meta.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
};

GemvJob gemv_job(const GemvShape& shape, const std::vector<PackedView>& parts, const Activations& a, uint32_t rows) {
  GemvJob job;
  job.rows = rows;
  job.parts = static_cast<uint32_t>(parts.size());
  uint32_t leading = 0, offset = 0;
  for (const uint32_t outputs : shape.outputs) leading += outputs;
  for (size_t p = 0; p < parts.size(); ++p) {
    job.part[p] = {parts[p], a.out.data() + offset, leading};
    offset += parts[p].rows;
  }
  job.quantised = {a.words.data(), a.meta.data(), nullptr};
  // As the executor does it: one or two rows are rounded by the product itself, unless their norm or GEGLU did it.
  if (rows <= 2 && shape.role == Role::kPlain) {
    job.input = GemvInput::kFloats;
    job.floats = a.x.data();
  }
  if (shape.role == Role::kGeglu) {
    job.output = GemvOutput::kGeglu;
    job.geglu = {a.act_words.data(), a.act_meta.data(), nullptr};
    job.geglu_steps = steps_of(parts[0].rows);
  } else if (shape.role == Role::kHead) {
    job.output = GemvOutput::kSoftcap;
    job.cap = 30.0f;
    job.non_finite = a.non_finite.data();
  }
  return job;
}

void bench_gemv(const Bench& bench) {
  std::printf("matrix-vector, %u row%s: us, GB/s and %% of %.0f GB/s\n%-14s", bench.rows, bench.rows == 1 ? "" : "s",
              bench.gbs, "");
  for (const NamedPacking& format : kPackings) std::printf("  %-21s", format.name);
  std::printf("\n");
  const Activations activations;
  for (const GemvShape& shape : gemv_shapes()) {
    std::printf("%-14s", shape.name);
    const uint32_t rows = std::min(bench.rows, gemv_max_rows(shape.cols, false, bench.shared_memory));
    for (const NamedPacking& format : kPackings) {
      uint64_t memory_bytes = 0, weight_bytes = 0;
      for (const uint32_t outputs : shape.outputs) {
        memory_bytes += packed_matrix_bytes(format.packing, outputs, shape.cols);
        weight_bytes += uint64_t{outputs} * steps_of(shape.cols) * packed_bytes(format.packing).total();
      }
      const uint32_t copies = copies_of(memory_bytes);
      std::vector<GemvJob> jobs;
      for (uint32_t c = 0; c < copies; ++c) {
        char* at = bench.pool.as<char>() + c * memory_bytes;
        std::vector<PackedView> parts;
        for (const uint32_t outputs : shape.outputs) {
          parts.push_back(random_matrix(format.packing, outputs, shape.cols, at));
          at += packed_matrix_bytes(format.packing, outputs, shape.cols);
        }
        jobs.push_back(gemv_job(shape, parts, activations, rows));
      }
      check(cudaDeviceSynchronize(), "benchmark input");
      const double ms = median_ms(bench.stream, std::max(copies, 8u), [&](uint32_t i) {
        gemv(jobs[i % copies], bench.sm_count, {bench.stream.get(), bench.overlap});
      });
      const double gbs = static_cast<double>(weight_bytes) / ms * 1e-6;
      std::printf("  %7.2f %5.0f %5.1f%%", ms * 1e3, gbs, 100.0 * gbs / bench.gbs);
    }
    std::printf("\n");
  }
}

// ----------------------------------------------------------------------------------------------------- matrix products

struct GroupedShape {
  const char* name;
  uint32_t experts, tokens, used, n, k;
  bool gather;
};

void bench_grouped(const Bench& bench) {
  std::printf("\ngrouped product          rows      n     k       ms  TFLOP/s  of limit   weights GB/s\n");
  const GroupedShape shapes[] = {
      {"26B gate+up", 128, 512, 8, 1408, 2816, true},  {"26B down", 128, 512, 8, 2816, 704, false},
      {"26B gate+up", 128, 2048, 8, 1408, 2816, true}, {"26B down", 128, 2048, 8, 2816, 704, false},
      {"26B gate+up", 128, 8192, 8, 1408, 2816, true}, {"26B down", 128, 8192, 8, 2816, 704, false},
      {"one group", 1, 4096, 1, 4096, 4096, false},
  };
  for (const GroupedShape& shape : shapes) {
    const uint32_t total = shape.tokens * shape.used;
    const auto a = filled<__nv_bfloat16>(uint64_t{total} * shape.k, kBfloats);
    std::vector<uint32_t> rows(total);
    for (uint32_t i = 0; i < total; ++i) rows[i] = static_cast<uint32_t>(i * uint64_t{2654435761u} % shape.tokens);
    const auto source = to_device(rows);
    const auto offsets = to_device(random_offsets(shape.experts, total));
    const DeviceArray<__nv_bfloat16> out(uint64_t{total} * shape.n, "benchmark output");
    const uint64_t bytes = uint64_t{shape.experts} * shape.n * shape.k * 2;
    const uint32_t copies = std::min(copies_of(bytes), 4u);
    fill(bench.pool.data(), bytes * copies, kBfloats);
    check(cudaDeviceSynchronize(), "benchmark input");
    const double ms = median_ms(bench.stream, 4, [&](uint32_t i) {
      const auto* w = reinterpret_cast<const __nv_bfloat16*>(bench.pool.as<char>() + i % copies * bytes);
      grouped_gemm(a.data(), shape.gather ? source.data() : nullptr, w, offsets.data(), shape.experts, total, shape.n,
                   shape.k, out.data(), {bench.stream.get(), bench.overlap});
    });
    const double tflops = 2.0 * total * shape.n * shape.k / ms * 1e-9;
    std::printf("%-20s %8u %6u %5u %8.3f %8.1f %8.1f%% %10.0f\n", shape.name, total, shape.n, shape.k, ms, tflops,
                100.0 * tflops / bench.tflops, static_cast<double>(bytes) / ms * 1e-6);
  }
}

struct GemmShape {
  const char* name;
  uint32_t n, k;
};

// cuBLASLt, and the grouped kernel with one group beside it.
void bench_gemm(const Bench& bench) {
  std::printf("\nplain product            rows      n     k  cuBLASLt ms  TFLOP/s  of limit   own ms  TFLOP/s\n");
  const GemmShape shapes[] = {
      {"E4B qkv", 3072, 2560}, {"E4B o", 2560, 2048}, {"E4B gate+up", 20480, 2560}, {"E4B down", 2560, 10240}};
  Gemm gemm(size_t{64} << 20);
  for (const GemmShape& shape : shapes) {
    for (const uint32_t m : {512u, 2048u}) {
      const auto a = filled<__nv_bfloat16>(uint64_t{m} * shape.k, kBfloats);
      const DeviceArray<__nv_bfloat16> out(uint64_t{m} * shape.n, "benchmark output");
      const auto offsets = to_device(std::vector<uint32_t>{0, m});
      const uint64_t bytes = uint64_t{shape.n} * shape.k * 2;
      const uint32_t copies = copies_of(bytes);
      fill(bench.pool.data(), bytes * copies, kBfloats);
      check(cudaDeviceSynchronize(), "benchmark input");
      const auto weights = [&](uint32_t i) {
        return reinterpret_cast<const __nv_bfloat16*>(bench.pool.as<char>() + i % copies * bytes);
      };
      gemm.tune(a.data(), weights(0), out.data(), m, shape.n, shape.k, bench.stream.get());
      const uint32_t launches = std::max(copies, 8u);
      const double ms = median_ms(bench.stream, launches, [&](uint32_t i) {
        gemm.run(a.data(), weights(i), out.data(), m, shape.n, shape.k, bench.stream.get());
      });
      const double own_ms = median_ms(bench.stream, launches, [&](uint32_t i) {
        grouped_gemm(a.data(), nullptr, weights(i), offsets.data(), 1, m, shape.n, shape.k, out.data(),
                     {bench.stream.get(), bench.overlap});
      });
      const double operations = 2.0 * m * shape.n * shape.k * 1e-9, tflops = operations / ms;
      std::printf("%-20s %8u %6u %5u %12.4f %8.1f %8.1f%% %8.4f %8.1f\n", shape.name, m, shape.n, shape.k, ms, tflops,
                  100.0 * tflops / bench.tflops, own_ms, operations / own_ms);
    }
  }
}

void run(uint32_t rows, double gbs, double tflops) {
  Bench bench{.rows = rows, .gbs = gbs, .tflops = tflops};
  int value = 0;
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  bench.sm_count = static_cast<uint32_t>(value);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "cudaDeviceGetAttribute");
  bench.shared_memory = static_cast<uint32_t>(value);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  bench.overlap = value >= 9;
  bench_gemv(bench);
  bench_grouped(bench);
  bench_gemm(bench);
}

}  // namespace
}  // namespace carat::cuda

int main(int count, char** arguments) {
  const int rows = count > 1 ? std::atoi(arguments[1]) : 1;
  const double gbs = count > 2 ? std::atof(arguments[2]) : 4400.0;
  const double tflops = count > 3 ? std::atof(arguments[3]) : 730.0;
  if (rows < 1 || rows > static_cast<int>(carat::cuda::kGemvRows) || !(gbs > 0.0) || !(tflops > 0.0)) {
    std::fprintf(stderr, "usage: carat_kernel_bench [rows 1-8 [memory GB/s [matrix TFLOP/s]]]\n");
    return 2;
  }
  try {
    carat::cuda::run(static_cast<uint32_t>(rows), gbs, tflops);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "carat_kernel_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
