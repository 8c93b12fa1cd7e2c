// Batched products over packed weights at the shapes of real models: microseconds, GB/s of weights, and their share of
// what the memory can deliver.
// Usage: carat_skinny_bench [memory GB/s [rows ...]]: the ceiling measured on the card (H200 by default), and the
// numbers of activation rows (8, 16, 32 and 64 by default).
//
// Launches take turns over copies of the weights that together exceed L2, and run as one graph.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "bench_device.cuh"
#include "exec/cuda/kernels/skinny/skinny_gemm.h"

namespace carat::cuda {
namespace {

struct Shape {
  const char* name;
  uint32_t cols;
  std::vector<uint32_t> outputs;  // of each part
  GemvOutput output;
  bool floats;  // activations as fp32, as after attention or GEGLU
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"E4B qkv", 2560, {2048, 512, 512}, GemvOutput::kStore, false},
      {"E4B o", 2048, {2560}, GemvOutput::kStore, true},
      {"E4B gate+up", 2560, {10240, 10240}, GemvOutput::kGeglu, false},
      {"E4B down", 10240, {2560}, GemvOutput::kStore, true},
      {"E4B inp_gate", 2560, {256}, GemvOutput::kStore, false},
      {"E4B proj", 256, {2560}, GemvOutput::kStore, true},
      {"E4B head", 2560, {262144}, GemvOutput::kSoftcap, false},
      {"31B gate+up", 5376, {21504, 21504}, GemvOutput::kGeglu, false},
      {"31B down", 21504, {5376}, GemvOutput::kStore, true},
  };
  return all;
}

struct NamedPacking {
  const char* name;
  Packing packing;
};
constexpr NamedPacking kPackings[] = {
    {"Q8_0", Packing::kQ8}, {"Q4_0", Packing::kQ4}, {"Q4_K", Packing::kQ4K}, {"Q6_K", Packing::kQ6K}};

class Bench {
 public:
  explicit Bench(double gbs) : gbs_(gbs) {
    const auto attribute = [](cudaDeviceAttr name) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, name, 0), "cudaDeviceGetAttribute");
      return static_cast<uint32_t>(value);
    };
    sm_count_ = attribute(cudaDevAttrMultiProcessorCount);
    shared_memory_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    how_ = {stream_.get(), attribute(cudaDevAttrComputeCapabilityMajor) >= 9};
    check(cudaMemset(counters_.data(), 0, counters_.bytes()), "cudaMemset");
  }

  void run(uint32_t rows) const {
    std::printf("batched product, %u rows: us, GB/s and %% of %.0f GB/s\n%-14s", rows, gbs_, "");
    for (const NamedPacking& format : kPackings) std::printf("  %-21s", format.name);
    std::printf("\n");
    for (const Shape& shape : shapes()) {
      std::printf("%-14s", shape.name);
      for (const NamedPacking& format : kPackings) time(shape, format.packing, rows);
      std::printf("\n");
    }
  }

 private:
  void time(const Shape& shape, Packing packing, uint32_t rows) const {
    uint64_t memory_bytes = 0, weight_bytes = 0;
    for (const uint32_t outputs : shape.outputs) {
      memory_bytes += packed_matrix_bytes(packing, outputs, shape.cols);
      weight_bytes += uint64_t{outputs} * steps_of(shape.cols) * packed_bytes(packing).total();
    }
    const uint32_t copies = copies_of(memory_bytes);
    std::vector<SkinnyJob> jobs;
    for (uint32_t c = 0; c < copies; ++c) {
      char* at = pool_.as<char>() + c * memory_bytes;
      SkinnyJob job;
      job.rows = rows;
      job.parts = static_cast<uint32_t>(shape.outputs.size());
      uint32_t leading = 0, offset = 0;
      for (const uint32_t outputs : shape.outputs) leading += outputs;
      for (uint32_t p = 0; p < job.parts; ++p) {
        job.part[p] = {random_matrix(packing, shape.outputs[p], shape.cols, at), out_.data() + offset, leading};
        at += packed_matrix_bytes(packing, shape.outputs[p], shape.cols);
        offset += shape.outputs[p];
      }
      if (!shape.floats) job.input = {fragments_.data(), scale_.data(), skinny_tiles(rows)};
      job.floats = x_.data();
      job.floats_leading = shape.cols;
      job.output = shape.output;
      if (shape.output == GemvOutput::kGeglu) job.largest = largest_.data();
      job.cap = 30.0f;
      job.non_finite = largest_.data();
      jobs.push_back(job);
    }
    check(cudaDeviceSynchronize(), "filling");
    const SkinnyScratch scratch{partial_.data(), partial_.size(), counters_.data(),
                                static_cast<uint32_t>(counters_.size())};
    const double ms = median_ms(stream_, std::max(copies, 20u), [&](uint32_t i) {
      skinny_gemm(jobs[i % copies], scratch, sm_count_, shared_memory_, how_);
    });
    const double gbs = static_cast<double>(weight_bytes) / ms / 1e6;
    std::printf("  %6.1f %5.0f %4.0f%%    ", ms * 1e3, gbs, 100.0 * gbs / gbs_);
  }

  static constexpr uint64_t kWidth = 21504, kOutputs = 262144;
  double gbs_;
  uint32_t sm_count_ = 0, shared_memory_ = 0;
  Stream stream_;
  LaunchConfig how_;
  DeviceMemory pool_{kPoolBytes, "benchmark weights"};
  DeviceArray<float> x_ = filled<float>(kSkinnyRows * kWidth, kFloats);
  DeviceArray<uint32_t> fragments_ = filled<uint32_t>(kSkinnyRows * kWidth / 2, kHalves);
  DeviceArray<float> scale_ = filled<float>(kSkinnyRows, kFloats);
  DeviceArray<float> out_{kSkinnyRows * kOutputs, "benchmark output"};
  DeviceArray<float> partial_{uint64_t{4} << 20, "benchmark scratch"};
  DeviceArray<uint32_t> counters_{1u << 15, "benchmark scratch"};
  DeviceArray<uint32_t> largest_{kSkinnyRows, "benchmark output"};
};

int run(int argc, char** argv) {
  const double gbs = argc > 1 ? std::atof(argv[1]) : 4400.0;
  std::vector<uint32_t> rows;
  for (int i = 2; i < argc; ++i) rows.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
  if (rows.empty()) rows = {8, 16, 32, 64};
  const bool bad = std::any_of(rows.begin(), rows.end(), [](uint32_t n) { return n < 1 || n > kSkinnyRows; });
  if (!(gbs > 0.0) || bad) {
    std::fprintf(stderr, "usage: carat_batch_bench [memory GB/s [rows from 1 to %u ...]]\n", kSkinnyRows);
    return 2;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no GPU\n");
    return 1;
  }
  const Bench bench(gbs);
  for (const uint32_t count : rows) bench.run(count);
  return 0;
}

}  // namespace
}  // namespace carat::cuda

int main(int argc, char** argv) {
  try {
    return carat::cuda::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
