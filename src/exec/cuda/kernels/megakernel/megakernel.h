#pragma once

// One kernel for a whole token: a block on every SM walks the same list of stages from the embedding to the logits.
//
// Weights never depend on the token, so some warps of each block do nothing but copy the block's weights to a ring in
// shared memory, across the ends of stages: memory stays busy while blocks exchange what they computed. The others each
// take a few rows of a product at a time, from a slot of the ring to the results in the hands of the other blocks,
// without waiting for one another. Blocks exchange vectors without barriers: every value travels with the version of
// its buffer (TaggedWord), and who needs it polls for that version.
#include <cuda_fp16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/megakernel/build.h"
#include "exec/cuda/kernels/megakernel/megakernel_shape.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

enum class MegakernelKind : uint32_t { kProduct, kAttention, kCombine, kPerLayerInputs };

enum class MegakernelInput : uint32_t {
  kResidual,  // the residual stream after absorbing `in` (may be null), normalised
  kVector,    // TaggedWord
  kEights,    // TaggedEight
  kSame,      // the activations of the stage before
};

enum class MegakernelOutput : uint32_t {
  kVector,       // TaggedWord
  kGeglu,        // rows are gate and up: gelu(gate) * up, TaggedWord
  kGegluEights,  // the same, TaggedEight
  kGeluTimes,    // gelu(result) * factors, TaggedWord
  kLogits,       // softcap, plain floats
};

// How a product is multiplied.
enum class MegakernelWay : uint32_t {
  kTasks,  // megakernel_product.cuh
  kGate,   // megakernel_ple.cuh
  kProject,
};

constexpr bool is_geglu(MegakernelOutput output) {
  return output == MegakernelOutput::kGeglu || output == MegakernelOutput::kGegluEights;
}

struct MegakernelPlanes {
  const void* quants;
  const void* high;
  const void* scales;
  const void* super;
};

// out = W x for one to three matrices of the same packing and width. A task is some rows of one matrix, or for GEGLU
// rows of the gate (part 0) and the rows of the up matrix (part 1) that belong to them.
struct MegakernelProduct {
  Packing packing;
  MegakernelInput input;
  MegakernelOutput output;
  MegakernelWay way;
  uint32_t parts;
  uint32_t part_end[2];  // rows up to the end of parts 0 and 1
  uint32_t rows;         // of all parts
  uint32_t tasks, deal;  // deal: tasks that stay together in a block
  uint32_t steps;        // of a row; experts' down product: of all experts in use together
  MegakernelTasks task;
  uint32_t columns;     // true width of the input; of one expert's in the experts' down product
  uint32_t in_version;  // of `in`
  uint32_t version;     // of the results
  MegakernelPlanes planes[3];
  const void* in;
  const float* next_norm;   // kResidual; null: as it is
  const float* delta_norm;  // kResidual with `in`
  // kResidual of a mixture of experts: `in` is the dense branch, this the other one
  const float* dense_norm;
  const TaggedWord* experts;
  const float* experts_norm;
  float scale;
  uint32_t experts_version;
  void* out;
  const TaggedWord* factors;  // kGeluTimes
  uint32_t factors_version;
  // Experts: rows of one expert in each part and where they begin. 0: not an expert product.
  uint32_t expert_stride[2], expert_offset[2];
  uint32_t expert_rows;     // GEGLU: gate rows of one expert
  uint32_t expert_steps;    // down: steps of one expert's rows
  uint32_t expert_inverse;  // down: 2^32 / (256 expert_steps), rounded up
  // Logits that choose experts. The dense GEGLU product makes them on the way to its activations, from router_weights
  // [experts_total][d]; the experts' GEGLU product after it waits for them. Null in all others.
  const float* router_weights;
  const float* router_scale;  // of the columns
  Tagged* router;
  uint32_t router_version;
  uint32_t experts_total;
  const float* expert_scale;
};

struct MegakernelAttention {
  AttentionShape shape;
  uint32_t pairs, first_pair;  // rotation angles of this kind of layer
  bool owns, v_from_k;
  bool lends;  // layers after it read what it writes
  const float* q_norm;
  const float* k_norm;
  KvView kv;
  uint32_t kv_stage;    // not `owns`: the attention stage that writes the token's own key and value
  uint32_t slot_shift;  // logarithm of the rows a slot of the ring takes
  const TaggedWord* qkv;
  uint32_t qkv_version;
  uint32_t version;      // of all results
  uint32_t most_splits;  // row length of the partial results
  TaggedQuad* partial;   // [H][hd / 4][most_splits]
  Tagged* stats;         // [H][most_splits][2]: maximum of score * log2(e), sum
  TaggedWord* out;       // [H * hd]
};

// Per-layer inputs (docs/gemma4.md 3.2).
struct MegakernelPerLayer {
  const TaggedWord* projection;  // [L * P]
  uint32_t projection_version, version;
  uint32_t slices, P;
  PackedView table;
  const float* norm;
  float projection_scale, table_scale;
  TaggedWord* out;  // [L * P]
};

struct alignas(16) MegakernelStage {
  MegakernelKind kind;
  uint32_t number;  // its place in the list, counted from 1
  union {
    MegakernelProduct product;
    MegakernelAttention attention;  // kAttention and kCombine
    MegakernelPerLayer per_layer;
  };
};

// What differs between tokens, in device memory.
struct MegakernelControl {
  const int32_t* token;
  const uint32_t* position;
  const uint32_t* sequence;
  uint32_t* serial;  // counted up by every run, so that no token takes the values of the one before
};

struct MegakernelJob {
  const MegakernelStage* stages;
  uint32_t stage_count;
  MegakernelControl control;
  PackedView embedding;
  uint32_t d;
  float embedding_scale;
  float eps;
  float softcap;
  uint32_t experts_used;
  uint32_t* non_finite;  // set where a logit is NaN or infinite
  const double* frequencies;
  uint32_t pairs;
  MegakernelMemory memory;
  uint64_t* trace;  // null, or [stage_count + 1]: the clock of block 0 when it began each stage, and at the end
};

// Build kIndex of kMegakernelBuilds, each compiled in a file of its own (token_*.cu).
template <size_t kIndex>
void run_megakernel_build(const MegakernelJob& job, uint32_t blocks, const LaunchConfig& launch);

// By the build that covers the needs of the model. `blocks` must be resident together: at most one per SM.
void run_megakernel(const MegakernelJob& job, const MegakernelBuild& needs, uint32_t blocks,
                    const LaunchConfig& launch);

}  // namespace carat::cuda
