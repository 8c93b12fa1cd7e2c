#include "exec/cuda/kernels/attention/attention.h"

#include "base/error.h"
#include "exec/cuda/kernels/attention/attention_config.h"
#include "exec/cuda/kernels/attention/attention_launch.h"
#include "exec/cuda/kernels/attention/decode/attention_step.h"

namespace carat::cuda {
namespace {

// The cut of a prompt into tiles must not depend on the card.
static_assert(Prefill256::kTile.bm == Prefill256Wide::kTile.bm && Prefill512::kTile.bm == Prefill512Wide::kTile.bm);

void check_cache(const AttentionShape& shape, const KvView& kv) {
  CARAT_CHECK(kv.cells > 0 && kv.cells % kKvTile == 0);
  CARAT_CHECK(!kv.quantised() || shape.hd % kKvScaleBlock == 0);
}

// The 512-column tiles of a small card fit every supported card, so they set what is needed at least.
void check_shared_memory(uint32_t limit) {
  if (limit < kSmallSharedMemory) {
    fail(ErrorCode::kUnsupported,
         "the GPU attention needs {} bytes of shared memory per block and this GPU has {}; run on the CPU (-ngl 0)",
         kSmallSharedMemory, limit);
  }
}

uint32_t tile_rows(uint32_t hd) {
  return hd <= 128 ? Prefill128::kTile.bm : hd <= 256 ? Prefill256::kTile.bm : Prefill512::kTile.bm;
}

// The arguments of a decode launch, checked; the place of the statistics follows from the rest.
DecodeArguments complete(DecodeArguments arguments, uint32_t rows, uint32_t splits) {
  const AttentionShape& shape = arguments.shape;
  check_attention_shape(shape);
  check_cache(shape, arguments.kv);
  CARAT_CHECK(rows <= 65535);  // a limit of the launch grid
  CARAT_CHECK(splits > 0 && splits * attention_head_groups(shape) <= kDecodeMaxBlocks);
  // Outputs first: they are read 16 bytes at a time, and hd is a multiple of 16.
  const uint64_t output_floats = static_cast<uint64_t>(rows) * shape.H * splits * shape.hd;
  arguments.stats = reinterpret_cast<float2*>(arguments.outputs + output_floats);
  return arguments;
}

void decode(const DecodeArguments& described, uint32_t rows, uint32_t splits, const LaunchConfig& launch) {
  const DecodeArguments arguments = complete(described, rows, splits);
  const uint32_t hd = arguments.shape.hd;
  const bool quantised = arguments.kv.quantised();
  if (hd <= 128) {
    quantised ? launch_decode_128_q8(arguments, rows, splits, launch)
              : launch_decode_128(arguments, rows, splits, launch);
  } else if (hd <= 256) {
    quantised ? launch_decode_256_q8(arguments, rows, splits, launch)
              : launch_decode_256(arguments, rows, splits, launch);
  } else {
    quantised ? launch_decode_512_q8(arguments, rows, splits, launch)
              : launch_decode_512(arguments, rows, splits, launch);
  }
}

template <typename Projection>
void step(const QkvPost& job, const Projection* projections, const DecodeArguments& described, uint32_t rows,
          uint32_t splits, const LaunchConfig& launch) {
  CARAT_CHECK(attention_step_supports(job.shape) && !job.kv.quantised() && !job.only_kv);
  const DecodeArguments arguments = complete(described, rows, splits);
  const auto launcher = job.shape.hd <= 256 ? launch_step_256<Projection> : launch_step_512<Projection>;
  launcher(arguments, job, projections, rows, splits, launch);
}

}  // namespace

uint32_t attention_tile_rows(const AttentionShape& shape, uint32_t shared_memory_limit) {
  check_attention_shape(shape);
  check_shared_memory(shared_memory_limit);
  return tile_rows(shape.hd) / (shape.H / shape.Hkv);
}

void attention_prefill(const AttentionShape& shape, const __half* q, const KvView& kv, const Segment* tiles,
                       uint32_t tile_count, __nv_bfloat16* out, uint32_t shared_memory_limit,
                       const LaunchConfig& launch) {
  check_attention_shape(shape);
  check_cache(shape, kv);
  check_shared_memory(shared_memory_limit);
  const PrefillArguments arguments{shape, q, kv, tiles, tile_count, out};
  const bool wide = shared_memory_limit >= attention_large_tile_bytes(shape.hd);
  if (shape.hd <= 128) {
    kv.quantised() ? launch_prefill_128_q8(arguments, launch) : launch_prefill_128(arguments, launch);
  } else if (shape.hd <= 256) {
    kv.quantised() ? launch_prefill_256_q8(arguments, wide, launch) : launch_prefill_256(arguments, wide, launch);
  } else {
    kv.quantised() ? launch_prefill_512_q8(arguments, wide, launch) : launch_prefill_512(arguments, wide, launch);
  }
}

void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, float* out, uint32_t splits, float* partial,
                      uint32_t* counters, const LaunchConfig& launch) {
  decode({shape, q, kv, positions, sequences, out, nullptr, partial, nullptr, counters}, rows, splits, launch);
}
void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, __nv_bfloat16* out, uint32_t splits, float* partial,
                      uint32_t* counters, const LaunchConfig& launch) {
  decode({shape, q, kv, positions, sequences, nullptr, out, partial, nullptr, counters}, rows, splits, launch);
}

void attention_step(const QkvPost& job, const float* projections, uint32_t rows, float* out, uint32_t splits,
                    float* partial, uint32_t* counters, const LaunchConfig& launch) {
  step(job, projections,
       {job.shape, nullptr, job.kv, job.positions, job.sequences, out, nullptr, partial, nullptr, counters}, rows,
       splits, launch);
}
void attention_step(const QkvPost& job, const __nv_bfloat16* projections, uint32_t rows, __nv_bfloat16* out,
                    uint32_t splits, float* partial, uint32_t* counters, const LaunchConfig& launch) {
  step(job, projections,
       {job.shape, nullptr, job.kv, job.positions, job.sequences, nullptr, out, partial, nullptr, counters}, rows,
       splits, launch);
}

}  // namespace carat::cuda
