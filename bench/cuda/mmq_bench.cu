// Prompt products of quantised weights and quantised activations (mmq) at the shapes of real models: TOPS with 8-bit
// and with 15-bit activations, and their share of the card's integer limit. Two operations per weight and row count.
//
// Usage: carat_mmq_bench [matrix TOPS [tiles]]: the card's limit for 8-bit integers (by default what bare mma.sync
// reaches on an H200); with "tiles" every tile height is timed, not only the chosen one.
//
// Launches take turns over copies of the weights that together exceed L2, and run as one graph.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench_device.cuh"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/kernels/mmq/mmq.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {
namespace {

struct Shape {
  const char* name;
  uint32_t n, k;
};
constexpr Shape kShapes[] = {
    {"E4B qkv", 3072, 2560},      {"E4B o", 2560, 2048},     {"E4B gate+up", 20480, 2560}, {"E4B down", 2560, 10240},
    {"12B gate+up", 30720, 3840}, {"12B down", 3840, 15360}, {"31B gate+up", 43008, 5376}, {"31B down", 5376, 21504},
};

struct NamedPacking {
  const char* name;
  Packing packing;
};
constexpr NamedPacking kPackings[] = {{"Q8_0", Packing::kQ8},
                                      {"Q4_0", Packing::kQ4},
                                      {"Q4_K", Packing::kQ4K},
                                      {"Q5_K", Packing::kQ5K},
                                      {"Q6_K", Packing::kQ6K}};

struct Card {
  uint32_t sm_count = 0;
  bool overlap = false;
  Stream stream;
  DeviceMemory pool{kPoolBytes, "benchmark weights"};
  Gemm gemm{size_t{64} << 20};
  DeviceArray<__nv_bfloat16> unpacked{uint64_t{43008} * 5376, "benchmark weights"};
};

// Rounded rows of random values.
struct Rows {
  DeviceArray<int8_t> quants;
  DeviceArray<float> scales, sums;
  MmqRows view;
  Rows(const Card& card, const __nv_bfloat16* values, uint32_t rows, uint32_t cols, MmqActivations activations)
      : quants(uint64_t{mmq_padded_rows(rows)} * mmq_chunks(cols) * kMmqChunk * static_cast<uint32_t>(activations),
               "benchmark input"),
        scales(uint64_t{mmq_padded_rows(rows)} * mmq_chunks(cols) * 4, "benchmark input"),
        sums(scales.size(), "benchmark input"),
        view{activations, quants.data(), scales.data(), sums.data()} {
    quantise_mmq(values, rows, cols, view, {card.stream.get(), false});
    card.stream.synchronise();
  }
};

void bench_shape(Card& card, const Shape& shape, uint32_t m, const NamedPacking& format, double limit, bool all_tiles) {
  const auto values = filled<__nv_bfloat16>(uint64_t{m} * shape.k, kBfloats);
  const DeviceArray<__nv_bfloat16> out(uint64_t{m} * shape.n, "benchmark output");
  const uint64_t bytes = packed_matrix_bytes(format.packing, shape.n, shape.k);
  const uint32_t copies = copies_of(bytes), launches = std::max(copies, 6u);
  std::vector<PackedView> weights;
  for (uint32_t c = 0; c < copies; ++c) {
    weights.push_back(random_matrix(format.packing, shape.n, shape.k, card.pool.as<char>() + c * bytes));
  }
  check(cudaDeviceSynchronize(), "benchmark input");
  const double operations = 2.0 * m * shape.n * shape.k * 1e-9;
  std::printf("%-12s %5u %-5s", shape.name, m, format.name);
  for (const MmqActivations activations : {MmqActivations::kInt8, MmqActivations::kInt16}) {
    const Rows rows(card, values.data(), m, shape.k, activations);
    MmqJob job{.x = rows.view, .part = {}, .parts = 1, .rows = m, .leading = shape.n, .out = out.data()};
    const auto time = [&](uint32_t tile_rows) {
      return median_ms(card.stream, launches, [&](uint32_t i) {
        job.part[0] = {weights[i % copies], 0};
        mmq(job, card.sm_count, {card.stream.get(), card.overlap}, tile_rows);
      });
    };
    const uint32_t tiles = (shape.n + kMmqColumns - 1) / kMmqColumns;
    const double tops = operations / time(0);
    std::printf("  %6.1f %4.1f%% (%3u)", tops, 100.0 * static_cast<double>(activations) * tops / limit,
                mmq_tile_rows(format.packing, activations, m, tiles, card.sm_count));
    for (const uint32_t tile_rows : kMmqTileRows) {
      if (!all_tiles || mmq_memory(format.packing, activations, tile_rows).slots == 0) continue;
      std::printf(" %u:%.0f", tile_rows, operations / time(tile_rows));
    }
  }
  // What mmq takes the place of: unpacking to bf16, then the vendor's library.
  card.gemm.tune(values.data(), card.unpacked.data(), out.data(), m, shape.n, shape.k, card.stream.get());
  const double ms = median_ms(card.stream, launches, [&](uint32_t i) {
    unpack_bf16(weights[i % copies], card.unpacked.data(), shape.k, card.stream.get());
    card.gemm.run(values.data(), card.unpacked.data(), out.data(), m, shape.n, shape.k, card.stream.get());
  });
  std::printf("  %6.1f\n", operations / ms);
  std::fflush(stdout);
}

void run(double limit, bool all_tiles) {
  Card card;
  int value = 0;
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  card.sm_count = static_cast<uint32_t>(value);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  card.overlap = value >= 9;
  fill(card.unpacked.data(), card.unpacked.bytes(), kBfloats);
  std::printf("mmq: TOPS, %% of %.0f (15-bit activations take two products), tile rows; unpacked + library: TFLOP/s\n",
              limit);
  std::printf("%-12s %5s %-5s  %-19s  %-19s  %s\n", "", "rows", "", "8-bit", "15-bit", "library");
  for (const uint32_t m : {512u, 2048u}) {
    for (const Shape& shape : kShapes) {
      for (const NamedPacking& format : kPackings) bench_shape(card, shape, m, format, limit, all_tiles);
    }
  }
}

}  // namespace
}  // namespace carat::cuda

int main(int count, char** arguments) {
  const double limit = count > 1 ? std::atof(arguments[1]) : 1800.0;
  const bool all_tiles = count > 2 && std::strcmp(arguments[2], "tiles") == 0;
  if (!(limit > 0.0) || count > 3 || (count > 2 && !all_tiles)) {
    std::fprintf(stderr, "usage: carat_mmq_bench [matrix TOPS [tiles]]\n");
    return 2;
  }
  try {
    carat::cuda::run(limit, all_tiles);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "carat_mmq_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
