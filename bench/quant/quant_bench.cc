// Dequantisation and quantisation of every format on one core. `fp32/s` counts the bytes of the floats (written or
// read), `blocks/s` those of the stored blocks; both are the rate of the same loop.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "quant/format.h"

namespace carat::quant {
namespace {

// 256 KiB of floats: blocks and values stay in the second-level cache, so the arithmetic is what is measured.
constexpr size_t kCount = size_t{1} << 16;

std::vector<float> normal_values() {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(generator);
  return values;
}

void report(benchmark::State& state, const FormatInfo& format) {
  const auto rate = [&](uint64_t bytes) {
    return benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate,
                              benchmark::Counter::kIs1000);
  };
  state.counters["fp32/s"] = rate(kCount * sizeof(float));
  state.counters["blocks/s"] = rate(format.row_bytes(kCount));
}

void bench_dequantise(benchmark::State& state, const FormatInfo& format) {
  // What a file would hold where carat can write the format; small repeated bytes, which are finite scales, elsewhere.
  std::vector<std::byte> blocks(format.row_bytes(kCount), std::byte{0x21});
  if (format.quantise != nullptr) format.quantise(normal_values().data(), blocks.data(), kCount, nullptr);
  std::vector<float> values(kCount);
  for (auto _ : state) {
    format.dequantise(blocks.data(), values.data(), kCount);
    benchmark::DoNotOptimize(values.data());
    benchmark::ClobberMemory();
  }
  report(state, format);
}

void bench_quantise(benchmark::State& state, const FormatInfo& format) {
  const std::vector<float> values = normal_values();
  std::vector<std::byte> blocks(format.row_bytes(kCount));
  for (auto _ : state) {
    format.quantise(values.data(), blocks.data(), kCount, nullptr);
    benchmark::DoNotOptimize(blocks.data());
    benchmark::ClobberMemory();
  }
  report(state, format);
}

void register_all() {
  for (const FormatInfo& format : formats()) {
    const std::string name(format.name);
    benchmark::RegisterBenchmark(("dequantise/" + name).c_str(), bench_dequantise, format);
  }
  for (const FormatInfo& format : formats()) {
    const std::string name(format.name);
    if (format.quantise != nullptr) {
      benchmark::RegisterBenchmark(("quantise/" + name).c_str(), bench_quantise, format);
    }
  }
}

}  // namespace
}  // namespace carat::quant

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  carat::quant::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
