// Host side of the batched products: how the work is cut, and which kernel does it.
#include "exec/cuda/kernels/skinny/skinny_gemm.cuh"

#include <algorithm>
#include <stdexcept>

namespace carat::cuda {
namespace {

// What a block's share of the work costs, in nanoseconds of the card the constants were measured on (H200). Only the
// ratios matter: a split more reads fewer activations into each SM and balances better, but its sums go through memory.
constexpr double kWeightBytesPerNs = 30.0;      // a SM's share of 4.4 TB/s, nearly
constexpr double kActivationBytesPerNs = 45.0;  // out of L2 into one SM while all do it
constexpr double kPartialBytesPerNs = 30.0;
constexpr double kSplitNs = 1200.0;  // fence, counter, and the sums' way back

constexpr uint32_t kMostSplits = 32;
constexpr uint32_t kStaticShared = 1024;  // beside the dynamic shared memory

void check_job(const SkinnyJob& job) {
  bool good = job.rows >= 1 && job.rows <= kSkinnyRows && job.parts >= 1 && job.parts <= kGemvParts;
  for (uint32_t p = 0; good && p < job.parts; ++p) good = job.part[p].weights.cols == job.part[0].weights.cols;
  if (good && job.output == GemvOutput::kGeglu) {
    good = job.parts == 2 && job.part[0].weights.packing == job.part[1].weights.packing &&
           job.part[0].weights.rows == job.part[1].weights.rows;
  }
  if (good && job.input.fragments == nullptr) good = job.floats != nullptr && job.floats_leading % 4 == 0;
  if (!good) throw std::logic_error("internal check failed: batch job");
}

uint32_t weight_tiles(const SkinnyJob& job) {
  const uint32_t unit = 16 * skinny_weight_tiles(job.rows);
  if (job.output == GemvOutput::kGeglu) return (2 * job.part[0].weights.rows + unit - 1) / unit;
  uint32_t tiles = 0;
  for (uint32_t p = 0; p < job.parts; ++p) tiles += (job.part[p].weights.rows + unit - 1) / unit;
  return tiles;
}

// The first tile of each part; GEGLU's tiles hold rows of both.
void place_parts(const SkinnyJob& job, SkinnyCut& cut) {
  const uint32_t unit = 16 * skinny_weight_tiles(job.rows);
  if (job.output == GemvOutput::kGeglu) return;
  for (uint32_t p = 1; p < job.parts; ++p) {
    cut.first[p] = cut.first[p - 1] + (job.part[p - 1].weights.rows + unit - 1) / unit;
  }
}

// Rows [first, first + count) of a job; first is a multiple of 8.
SkinnyJob rows_of(SkinnyJob job, uint32_t first, uint32_t count) {
  job.rows = count;
  for (uint32_t p = 0; p < job.parts; ++p) job.part[p].out += uint64_t{first} * job.part[p].leading;
  if (job.input.fragments != nullptr) {
    job.input.fragments += first / kSkinnyTileRows * 32 * 4;
    job.input.scale += first;
  }
  if (job.floats != nullptr) job.floats += uint64_t{first} * job.floats_leading;
  if (job.floats_largest != nullptr) job.floats_largest += first;
  if (job.largest != nullptr) job.largest += first;
  if (job.factors != nullptr) job.factors += uint64_t{first} * job.factors_leading;
  if (job.non_finite != nullptr) job.non_finite += first;
  return job;
}

// The cheapest way to cut a job; none (0 splits) where the activations do not fit or the sums would take too much room.
SkinnyCut choose_cut(const SkinnyJob& job, const SkinnyScratch& scratch, uint32_t sm_count, uint32_t shared_memory) {
  const uint32_t steps = job.part[0].weights.steps, tiles = weight_tiles(job);
  const uint32_t tile_rows = 16 * skinny_weight_tiles(job.rows);
  const double tile_step_bytes = double{1} * tile_rows * packed_bytes(job.part[0].weights.packing).total();
  const uint64_t tile_floats = uint64_t{tile_rows} * skinny_tiles(job.rows) * kSkinnyTileRows;
  SkinnyCut best{.splits = 0};
  double least = 0.0;
  // Blocks of different splits may wait for one another, so all must be running.
  for (uint32_t splits = 1; splits <= std::min({steps, kMostSplits, sm_count}); ++splits) {
    const uint32_t slab = (steps + splits - 1) / splits;
    if (skinny_shared_bytes(slab, job.rows) + kStaticShared > shared_memory) continue;
    if (splits > 1 && splits * tiles * tile_floats > scratch.floats) break;
    if (splits > 1 && std::max(tiles, 2 * sm_count) > scratch.counter_count) break;
    const SkinnyCut cut{.splits = splits, .blocks = std::clamp(sm_count / splits, 1u, tiles), .tiles = tiles};
    const uint32_t block_tiles = (tiles + cut.blocks - 1) / cut.blocks;
    double cost =
        block_tiles * slab * tile_step_bytes / kWeightBytesPerNs +
        skinny_slab_bytes(slab, job.rows) * (job.input.fragments == nullptr ? 2.0 : 1.0) / kActivationBytesPerNs;
    if (splits > 1) cost += kSplitNs + double(block_tiles * tile_floats) * 4 * 2.0 / kPartialBytesPerNs;
    if (best.splits == 0 || cost < least) {
      best = cut;
      least = cost;
    }
  }
  place_parts(job, best);
  return best;
}

// All parts have the same packing.
void multiply(const SkinnyJob& job, const SkinnyScratch& scratch, uint32_t sm_count, uint32_t shared_memory,
              const LaunchConfig& launch) {
  const SkinnyCut cut = choose_cut(job, scratch, sm_count, shared_memory);
  if (cut.splits == 0) {
    if (job.rows <= kSkinnyTileRows)
      throw std::logic_error("internal check failed: a batched product that cannot be cut");
    const uint32_t first = skinny_tiles(job.rows) / 2 * kSkinnyTileRows;
    multiply(rows_of(job, 0, first), scratch, sm_count, shared_memory, launch);
    multiply(rows_of(job, first, job.rows - first), scratch, sm_count, shared_memory, launch);
    return;
  }
  switch (job.part[0].weights.packing) {
    case Packing::kQ8:
      return skinny_gemm_8bit(job, cut, scratch, launch);
    case Packing::kQ4:
    case Packing::kQ4K:
      return skinny_gemm_4bit(job, cut, scratch, launch);
    case Packing::kQ5K:
    case Packing::kQ6K:
      return skinny_gemm_6bit(job, cut, scratch, launch);
    default:
      return skinny_gemm_float(job, cut, scratch, launch);
  }
}

}  // namespace

void skinny_gemm(const SkinnyJob& job, const SkinnyScratch& scratch, uint32_t sm_count, uint32_t shared_memory,
                 const LaunchConfig& launch) {
  check_job(job);
  for (uint32_t first = 0; first < job.parts;) {
    // Files mix formats within a group: each run of parts of one packing is a launch.
    SkinnyJob run = job;
    uint32_t last = first + 1;
    while (last < job.parts && job.part[last].weights.packing == job.part[first].weights.packing) ++last;
    run.parts = last - first;
    std::copy(job.part + first, job.part + last, run.part);
    multiply(run, scratch, sm_count, shared_memory, launch);
    first = last;
  }
}

}  // namespace carat::cuda
