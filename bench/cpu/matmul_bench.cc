// Matrix products of the CPU executor on one core, per instruction set and weight format.
//   decode:  one row against 64 MiB of weights; bytes/s is the speed weights are read at (the limit: memory)
//   prefill: 256 rows; items/s are multiply-adds (the limit: the dot product instruction)

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "exec/cpu/matmul/activations.h"
#include "exec/cpu/matmul/matmul.h"
#include "exec/cpu/simd/instruction_set.h"
#include "model/writing/random_blocks.h"

namespace carat::exec::cpu {
namespace {

constexpr uint32_t kCols = 2560;

struct Setup {
  std::vector<std::byte> bytes;
  model::Matrix matrix;
  std::vector<float> inputs;

  Setup(quant::Format format, uint64_t weight_bytes, uint32_t input_rows) {
    const quant::FormatInfo& info = quant::info(format);
    const uint64_t rows = weight_bytes / info.row_bytes(kCols) / 16 * 16;
    bytes.resize(rows * info.row_bytes(kCols));
    model::RandomBlocks(format, 0.0f, 0.02f, 1).fill(0, bytes.size() / info.bytes, bytes.data());
    matrix = {.name = "bench", .format = format, .cols = kCols, .rows = rows, .data = bytes};
    inputs.resize(size_t{input_rows} * kCols);
    std::vector<std::byte> blocks(inputs.size() * sizeof(float));
    model::RandomBlocks(quant::Format::kF32, 0.0f, 1.0f, 2).fill(0, inputs.size(), blocks.data());
    quant::info(quant::Format::kF32).dequantise(blocks.data(), inputs.data(), inputs.size());
  }
};

void multiply(benchmark::State& state, const KernelTable& kernels, quant::Format format, bool int16,
              uint64_t weight_bytes, uint32_t rows) {
  const Setup setup(format, weight_bytes, rows);
  const WeightMatrix weights(kernels, setup.matrix, int16);
  ActivationBuffer activations(kernels, rows, kCols);
  activations.set_source(setup.inputs.data(), kCols, rows, kCols, int16);
  for (uint32_t tile = 0; tile < activations.tiles().count(); ++tile) {
    activations.quantise(activations.tiles().tile(tile));
  }
  std::vector<float> out(size_t{rows} * weights.rows());
  ThreadPool pool(1);
  Multiplier multiplier(kernels, pool, rows);
  for (auto _ : state) {
    multiplier.run({&weights, &activations.view(), out.data(), weights.rows()});
    benchmark::DoNotOptimize(out.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(setup.bytes.size()));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(uint64_t{weights.rows()} * kCols * rows));
}

void attend(benchmark::State& state, const KernelTable& kernels, uint32_t queries, uint32_t hd) {
  constexpr uint32_t kKeys = 4096, kPage = 64;
  const std::vector<uint16_t> cache(size_t{kKeys} * hd, 0x3400);  // 0.25
  std::vector<uint32_t> table(kKeys / kPage);
  for (uint32_t i = 0; i < table.size(); ++i) table[i] = i;
  const std::vector<float> query(hd, 0.01f);
  const std::vector<const float*> pointers(queries, query.data());
  const std::vector<uint32_t> positions(queries, kKeys - 1);
  std::vector<float> peaks(queries), totals(queries), outputs(size_t{queries} * hd);
  std::vector<float> scratch(size_t{kKeyBlock} * hd + kQueryTile * kKeyBlock);
  const AttentionSpan span = {.queries = pointers.data(),
                              .positions = positions.data(),
                              .count = queries,
                              .hd = hd,
                              .window = kKeys,
                              .pages = {table.data(), kKeys / kPage, kPage, size_t{kPage} * hd * sizeof(uint16_t)},
                              .keys = cache.data(),
                              .values = cache.data(),
                              .format = quant::Format::kF16,
                              .begin = 0,
                              .end = kKeys,
                              .peaks = peaks.data(),
                              .totals = totals.data(),
                              .outputs = outputs.data(),
                              .scratch = scratch.data()};
  for (auto _ : state) {
    kernels.attend(span);
    benchmark::DoNotOptimize(outputs.data());
  }
  state.SetBytesProcessed(state.iterations() * int64_t{4} * kKeys * hd);
  state.SetItemsProcessed(state.iterations() * int64_t{2} * kKeys * hd * queries);
}

const bool kRegistered = [] {
  for (const KernelTable* kernels : usable_kernels()) {
    for (const quant::FormatInfo& format : quant::formats()) {
      const std::string suffix = fmt::format("{}/{}", kernels->name, format.name);
      const bool is_float = format.block == 1;
      for (const bool int16 : {false, true}) {
        if (is_float && int16) continue;
        const char* mode = is_float ? "" : int16 ? "/int16" : "/int8";
        benchmark::RegisterBenchmark(("decode/" + suffix + mode).c_str(), multiply, *kernels, format.format, int16,
                                     uint64_t{64} << 20, 1u);
        benchmark::RegisterBenchmark(("prefill/" + suffix + mode).c_str(), multiply, *kernels, format.format, int16,
                                     uint64_t{1} << 20, 256u);
      }
    }
    for (const uint32_t queries : {1u, 8u, 32u}) {
      benchmark::RegisterBenchmark(fmt::format("attend/{}/queries:{}", kernels->name, queries).c_str(), attend,
                                   *kernels, queries, 256u);
    }
  }
  return true;
}();

}  // namespace
}  // namespace carat::exec::cpu
