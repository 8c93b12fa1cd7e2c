// Attention on the GPU at the shapes of real models: TFLOP/s of prompts, GB/s of decode, and their share of what the
// card can do. Usage: attention_bench [matrix TFLOP/s [memory GB/s]], the ceilings measured on the card (H200 by
// default).
//
// Counted are the operations (4 hd per head and visible key) and bytes (K and V of visible keys, once per row) that any
// implementation needs. Decode reads a different sequence with every launch, more than L2 holds in total, and runs as
// one graph, so that neither the cache nor launch overhead flatters or hides it.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"
#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_launch.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

namespace carat::cuda {
namespace {

struct Ceilings {
  double tflops = 730.0;  // bf16 matrix product of the vendor's library
  double gbs = 4400.0;    // read
};

struct Card {
  uint32_t shared_memory = 0, sm_count = 0;
  bool overlap = false;
};

Card query_card() {
  Card card;
  int value = 0;
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "cudaDeviceGetAttribute");
  card.shared_memory = static_cast<uint32_t>(value);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  card.sm_count = static_cast<uint32_t>(value);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  card.overlap = value >= 9;
  return card;
}

// Uniform values in [-scale, scale): zeros would run faster than real data.
__global__ void fill_kernel(__half* values, uint64_t count, uint32_t seed, float scale) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0x94d049bb133111ebu;
    values[i] = __float2half((static_cast<float>(x >> 40) * 0x1p-23f - 1.0f) * scale);
  }
}

DeviceArray<__half> random_halves(uint64_t count, float scale) {
  DeviceArray<__half> array(count, "benchmark input");
  fill_kernel<<<1024, 256>>>(array.data(), count, static_cast<uint32_t>(count), scale);
  check_launch("fill_kernel");
  return array;
}

// The cache of `sequences` sequences, in fp16 or q8_0.
class RandomCache {
 public:
  RandomCache(const AttentionShape& shape, uint32_t sequences, uint32_t cells, bool quantised)
      : cells_(cells), quantised_(quantised) {
    const uint64_t rows = uint64_t{sequences} * shape.Hkv * cells, elements = rows * shape.hd;
    if (quantised) {
      // Random bytes; the halves below give them the size that fp16 values have.
      k_ = random_halves(elements / 2, 1.7f);
      v_ = random_halves(elements / 2, 1.7f);
      k_scales_ = random_halves(rows * kv_scale_columns(shape.hd), 0.013f);
      v_scales_ = random_halves(rows * kv_scale_columns(shape.hd), 0.013f);
    } else {
      k_ = random_halves(elements, 1.7f);
      v_ = random_halves(elements, 1.7f);
    }
  }

  KvView view() const {
    if (!quantised_) return {.k = k_.data(), .v = v_.data(), .cells = cells_};
    return {.cells = cells_,
            .k_quants = reinterpret_cast<int8_t*>(k_.data()),
            .v_quants = reinterpret_cast<int8_t*>(v_.data()),
            .k_scales = k_scales_.data(),
            .v_scales = v_scales_.data()};
  }

 private:
  uint32_t cells_;
  bool quantised_;
  DeviceArray<__half> k_, v_, k_scales_, v_scales_;
};

template <typename T>
DeviceArray<T> to_device(const std::vector<T>& values) {
  DeviceArray<T> array(values.size(), "benchmark input");
  check(cudaMemcpy(array.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return array;
}

// Median milliseconds of one call of `work`, after a warm-up.
double median_ms(const Stream& stream, int repeats, const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) work();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    const Event start(true), stop(true);
    start.record(stream.get());
    work();
    stop.record(stream.get());
    stop.synchronise();
    times.push_back(stop.since(start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Milliseconds of a single call after a warm-up, for what takes long.
double once_ms(const Stream& stream, const std::function<void()>& work) {
  work();
  const Event start(true), stop(true);
  start.record(stream.get());
  work();
  stop.record(stream.get());
  stop.synchronise();
  return stop.since(start);
}

uint64_t visible_keys(uint32_t window, uint32_t position) {
  return window == 0 ? position + 1 : std::min(window, position + 1);
}

// ---------------------------------------------------------------------------------------------------------- prompts

// A prompt of S tokens of one sequence, from position 0.
struct PromptBench {
  AttentionShape shape;
  uint32_t S;
  DeviceArray<__half> q;
  RandomCache cache;
  DeviceArray<Segment> tiles;
  DeviceArray<__nv_bfloat16> out;
  double operations = 0.0;

  PromptBench(const AttentionShape& s, uint32_t length, uint32_t tile_rows, bool quantised)
      : shape(s),
        S(length),
        q(random_halves(uint64_t{length} * s.H * s.hd, 0.1f)),
        cache(s, 1, length, quantised),
        out(uint64_t{length} * s.H * s.hd, "benchmark output") {
    std::vector<Segment> segments;
    for (uint32_t i = 0; i < S; i += tile_rows) segments.push_back({i, std::min(tile_rows, S - i), i, 0});
    tiles = to_device(segments);
    // The kernels run on a stream that does not wait for what the default stream copies and fills.
    check(cudaDeviceSynchronize(), "benchmark input");
    for (uint32_t p = 0; p < S; ++p) operations += 4.0 * s.hd * s.H * static_cast<double>(visible_keys(s.window, p));
  }

  uint32_t tile_count() const { return static_cast<uint32_t>(tiles.size()); }
};

// Ends the line of the shape where there is such a kernel.
void bench_warpgroups(const Ceilings& ceilings, const Stream& stream, const AttentionShape& shape, uint32_t S) {
  if (!wgmma_available() || !warpgroup_attention_supports(shape, false)) return;
  const PromptBench b(shape, S, warpgroup_attention_tile_rows(shape), false);
  const double ms = median_ms(stream, S > 8192 ? 5 : 15, [&] {
    attention_prefill_wgmma({shape, b.q.data(), b.cache.view(), b.tiles.data(), b.tile_count(), b.out.data()},
                            {stream.get(), false});
  });
  const double tflops = b.operations / ms * 1e-9;
  std::printf("             %7.3f %8.1f %8.1f%%", ms, tflops, 100.0 * tflops / ceilings.tflops);
}

void bench_prompts(const Card& card, const Ceilings& ceilings, const Stream& stream) {
  std::printf(
      "prompt attention   H Hkv  hd window      S      ms  TFLOP/s  of limit   q8_0 cache: ms  TFLOP/s   by "
      "warpgroups: ms  TFLOP/s  of limit\n");
  const AttentionShape shapes[] = {
      {8, 2, 256, 512}, {8, 2, 256, 0}, {8, 2, 512, 0}, {16, 8, 256, 1024}, {16, 1, 512, 0}};
  for (const AttentionShape& shape : shapes) {
    for (const uint32_t S : {2048u, 8192u, 32768u}) {
      double ms[2], tflops[2];
      for (const bool quantised : {false, true}) {
        const PromptBench b(shape, S, attention_tile_rows(shape, card.shared_memory), quantised);
        ms[quantised] = median_ms(stream, S > 8192 ? 5 : 15, [&] {
          attention_prefill(shape, b.q.data(), b.cache.view(), b.tiles.data(), b.tile_count(), b.out.data(),
                            card.shared_memory, {stream.get(), false});
        });
        tflops[quantised] = b.operations / ms[quantised] * 1e-9;
      }
      std::printf("                  %2u  %2u %4u   %4u %6u %7.3f %8.1f %8.1f%%          %7.3f %8.1f", shape.H,
                  shape.Hkv, shape.hd, shape.window, S, ms[0], tflops[0], 100.0 * tflops[0] / ceilings.tflops, ms[1],
                  tflops[1]);
      bench_warpgroups(ceilings, stream, shape, S);
      std::printf("\n");
    }
  }
}

// A long prompt in chunks as the executor runs it, all keys against chosen blocks of them.
void bench_sparse(const Card& card, const Stream& stream) {
  if (card.shared_memory < sparse_attention_shared_memory(131072)) return;
  std::printf("long prompts, chunks of 4096   H Hkv  hd      S    mma: ms  sparse: ms  of that choosing  faster\n");
  constexpr uint32_t kChunk = 4096;
  const SparseAttention sparse;
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{16, 1, 512, 0}}) {
    for (const uint32_t S : {16384u, 32768u, 65536u, 131072u}) {
      const uint32_t tile_rows = attention_tile_rows(shape, card.shared_memory), tiles = kChunk / tile_rows;
      const PromptBench b(shape, S, tile_rows, false);
      SparseScratch scratch{};
      scratch.pooled_blocks = S / kSparseBlock + 1;
      scratch.list_length = sparse_most_blocks(sparse, S);
      const DeviceArray<__half> pooled(uint64_t{scratch.pooled_blocks} * shape.Hkv * shape.hd, "benchmark scratch");
      const DeviceArray<uint16_t> blocks(uint64_t{tiles} * shape.Hkv * scratch.list_length, "benchmark scratch");
      const DeviceArray<uint32_t> counts(uint64_t{tiles} * shape.Hkv, "benchmark scratch");
      scratch.pooled = pooled.data();
      scratch.blocks = blocks.data();
      scratch.counts = counts.data();
      const LaunchConfig launch{stream.get(), card.overlap};
      const auto chunk = [&](uint32_t first, bool choosing_only) {
        const Segment* segments = b.tiles.data() + first / tile_rows;
        if (choosing_only) {
          const SparseArguments arguments{
              {shape, b.q.data(), b.cache.view(), segments, tiles, b.out.data()}, sparse, scratch};
          launch_pool_keys(shape, b.cache.view(), 0, (first + kChunk) / kSparseBlock, scratch, launch);
          launch_select_blocks(arguments, launch);
        } else {
          attention_prefill_sparse(shape, sparse, b.q.data(), b.cache.view(), segments, tiles, 0, first + kChunk,
                                   scratch, b.out.data(), launch);
        }
      };
      const auto prompt = [&](bool choosing_only) {
        return once_ms(stream, [&] {
          for (uint32_t first = 0; first < S; first += kChunk) {
            if (first + kChunk > sparse.from) {
              chunk(first, choosing_only);
            } else if (!choosing_only) {
              attention_prefill(shape, b.q.data(), b.cache.view(), b.tiles.data() + first / tile_rows, tiles,
                                b.out.data(), card.shared_memory, launch);
            }
          }
        });
      };
      const double dense = once_ms(stream, [&] {
        for (uint32_t first = 0; first < S; first += kChunk) {
          attention_prefill(shape, b.q.data(), b.cache.view(), b.tiles.data() + first / tile_rows, tiles, b.out.data(),
                            card.shared_memory, launch);
        }
      });
      const double all = prompt(false), choosing = prompt(true);
      std::printf("                              %2u  %2u %4u %6u  %9.2f  %10.2f  %16.2f  %5.2fx\n", shape.H, shape.Hkv,
                  shape.hd, S, dense, all, choosing, dense / all);
    }
  }
}

// Alternatives to the tiles of attention_config.h, to choose between them on a new card.
template <int kHd, int kBm, int kBn, int kWarpsM, int kWarpsN, int kRing>
struct Alternative {
  static constexpr AttentionTile kTile{kHd, kBm, kBn, kWarpsM, kWarpsN, kRing, true};
};

template <typename Choice>
void bench_tile(const Card& card, const AttentionShape& shape, uint32_t S, const Stream& stream) {
  constexpr AttentionTile T = Choice::kTile;
  if (AttentionLayout<T>::kSharedBytes > card.shared_memory) return;
  const PromptBench b(shape, S, T.bm / (shape.H / shape.Hkv), T.storage != TileStorage::kHalf);
  const PrefillArguments arguments{shape, b.q.data(), b.cache.view(), b.tiles.data(), b.tile_count(), b.out.data()};
  const double ms = median_ms(stream, 15, [&] { launch_prefill_tile<Choice>(arguments, {stream.get(), false}); });
  std::printf("  %3d x %2d, %d x %d warps, ring %d: window %4u S %5u %8.1f TFLOP/s\n", T.bm, T.bn, T.warps_m, T.warps_n,
              T.ring, shape.window, S, b.operations / ms * 1e-9);
}

void bench_tiles(const Card& card, const Stream& stream) {
  for (const uint32_t window : {0u, 512u}) {
    const AttentionShape shape{8, 2, 256, window};
    std::printf("tiles for hd 256\n");
    bench_tile<Prefill256Wide>(card, shape, 8192, stream);
    bench_tile<Prefill256Q8>(card, shape, 8192, stream);
    bench_tile<Prefill256>(card, shape, 8192, stream);
    bench_tile<Alternative<256, 128, 64, 8, 1, 2>>(card, shape, 8192, stream);
    bench_tile<Alternative<256, 128, 64, 4, 2, 2>>(card, shape, 8192, stream);
    bench_tile<Alternative<256, 128, 64, 4, 2, 3>>(card, shape, 8192, stream);
  }
  std::printf("tiles for hd 512\n");
  const AttentionShape shape{8, 2, 512, 0};
  bench_tile<Prefill512Wide>(card, shape, 8192, stream);
  bench_tile<Prefill512>(card, shape, 8192, stream);
  bench_tile<Alternative<512, 64, 64, 4, 2, 2>>(card, shape, 8192, stream);
  bench_tile<Alternative<512, 64, 32, 2, 4, 3>>(card, shape, 8192, stream);
  bench_tile<Alternative<512, 64, 32, 4, 2, 4>>(card, shape, 8192, stream);
}

// ----------------------------------------------------------------------------------------------------------- decode

struct DecodeFigures {
  double us, gbs;
  uint32_t splits;
};

// `rows` sequences of `context` tokens decode one token each; launches take turns over different sequences.
DecodeFigures bench_decode_at(const Card& card, const Stream& stream, const AttentionShape& shape, uint32_t rows,
                              uint32_t context, bool quantised) {
  constexpr uint32_t kLaunches = 24;
  const uint64_t keys = visible_keys(shape.window, context - 1);
  const uint32_t cells = static_cast<uint32_t>((keys + 63) / 64 * 64);
  const uint64_t row_bytes = 2 * keys * shape.Hkv * kv_row_bytes(shape.hd, quantised);
  const uint64_t turns = std::clamp<uint64_t>((512u << 20) / (row_bytes * rows), 1, kLaunches);
  const auto sequences = static_cast<uint32_t>(turns) * rows;
  const RandomCache cache(shape, sequences, cells, quantised);
  const DeviceArray<__half> q = random_halves(uint64_t{rows} * shape.H * shape.hd, 0.1f);
  std::vector<uint32_t> ids(sequences);
  for (uint32_t i = 0; i < sequences; ++i) ids[i] = i;
  const DeviceArray<uint32_t> sequence_ids = to_device(ids);
  const DeviceArray<uint32_t> positions = to_device(std::vector<uint32_t>(rows, context - 1));
  const DeviceArray<uint32_t> counters = to_device(std::vector<uint32_t>(rows * shape.Hkv, 0));
  const DeviceArray<float> out(uint64_t{rows} * shape.H * shape.hd, "benchmark output");
  const uint32_t splits = attention_decode_splits(shape, rows, context, card.sm_count);
  const DeviceArray<float> partial(attention_decode_scratch(shape, rows, splits), "benchmark scratch");
  check(cudaDeviceSynchronize(), "benchmark input");

  const Graph graph = Graph::capture(stream.get(), [&] {
    for (uint32_t i = 0; i < kLaunches; ++i) {
      attention_decode(shape, q.data(), cache.view(), positions.data(), sequence_ids.data() + i % turns * rows, rows,
                       out.data(), splits, partial.data(), counters.data(), {stream.get(), card.overlap});
    }
  });
  const double us = median_ms(stream, 15, [&] { graph.launch(stream.get()); }) * 1e3 / kLaunches;
  return {us, static_cast<double>(row_bytes * rows) / us * 1e-3, splits};
}

void bench_decode_both(const Card& card, const Ceilings& ceilings, const Stream& stream, const AttentionShape& shape,
                       uint32_t rows, uint32_t context) {
  const DecodeFigures half = bench_decode_at(card, stream, shape, rows, context, false);
  const DecodeFigures q8 = bench_decode_at(card, stream, shape, rows, context, true);
  std::printf("                  %2u  %2u %4u   %4u %7u %4u %6u %8.2f %7.0f %8.1f%%          %8.2f %7.0f %8.1f%%\n",
              shape.H, shape.Hkv, shape.hd, shape.window, context, rows, half.splits, half.us, half.gbs,
              100.0 * half.gbs / ceilings.gbs, q8.us, q8.gbs, 100.0 * q8.gbs / ceilings.gbs);
}

void bench_decode(const Card& card, const Ceilings& ceilings, const Stream& stream) {
  std::printf(
      "decode attention   H Hkv  hd window context rows splits       us    GB/s  of limit   q8_0 cache:  us    GB/s  "
      "of limit\n");
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{16, 1, 512, 0}}) {
    for (const uint32_t context : {128u, 1024u, 4096u, 8192u, 32768u, 131072u}) {
      bench_decode_both(card, ceilings, stream, shape, 1, context);
    }
  }
  for (const AttentionShape& shape : {AttentionShape{8, 2, 256, 512}, AttentionShape{16, 8, 256, 1024}}) {
    for (const uint32_t context : {128u, 4096u}) bench_decode_both(card, ceilings, stream, shape, 1, context);
  }
  for (const uint32_t rows : {8u, 32u, 64u}) {
    bench_decode_both(card, ceilings, stream, {8, 2, 256, 512}, rows, 4096);
    bench_decode_both(card, ceilings, stream, {8, 2, 512, 0}, rows, 4096);
  }
}

}  // namespace
}  // namespace carat::cuda

int main(int count, char** arguments) {
  carat::cuda::Ceilings ceilings;
  if (count > 1) ceilings.tflops = std::atof(arguments[1]);
  if (count > 2) ceilings.gbs = std::atof(arguments[2]);
  if (!(ceilings.tflops > 0.0) || !(ceilings.gbs > 0.0)) {
    std::fprintf(stderr, "usage: attention_bench [matrix TFLOP/s [memory GB/s]]\n");
    return 2;
  }
  try {
    const carat::cuda::Card card = carat::cuda::query_card();
    const carat::cuda::Stream stream;
    carat::cuda::bench_prompts(card, ceilings, stream);
    carat::cuda::bench_tiles(card, stream);
    carat::cuda::bench_decode(card, ceilings, stream);
    carat::cuda::bench_sparse(card, stream);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
