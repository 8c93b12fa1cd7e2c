#pragma once

#include <cstdint>
#include <string_view>

#include "exec/cuda/plan/plan.h"
#include "model/model.h"

namespace carat::cuda {

// The parts a pass is timed in. The passes name what they just launched; what that had to move and compute follows from
// the shapes (work_of), so that the passes carry no arithmetic about it.
enum class Step : uint8_t {
  kUpload,      // rows on their way to the device, and waiting for the host
  kEmbed,       // token rows, rotation tables
  kPleInput,    // per-layer embeddings of all layers: projection, table rows, norm
  kNorm,        // residual sum and norm where no product does it on the way
  kQkv,         // all projections of a layer, or only some of them:
  kQueries,     //
  kKeysValues,  //
  kHeads,       // head norms, rotation, cache write
  kAttention,
  kAttentionOutput,
  kGateUp,
  kDown,
  kRouter,        // logits, choice and sorting of rows by expert
  kGateUpRouter,  // both in one, where the router is no step of its own
  kExpertsUp,
  kExpertsDown,
  kPleGate,
  kPleProject,
  kUnpack,  // quantised weights to bf16 for the next product
  kHead,
  kSelect,
};

// What steps are shown as.
enum class Family : uint8_t {
  kUpload,
  kEmbedding,
  kPle,
  kNorms,
  kQkv,
  kAttentionSliding,
  kAttentionGlobal,
  kAttentionOutput,
  kFeedForward,
  kExperts,
  kUnpacking,
  kHead,
  kSelection,
};
inline constexpr uint32_t kFamilies = 13;
std::string_view family_name(Family family);

struct StepMark {
  Step step;
  uint32_t layer;   // of kPleInput: the number of layers whose embeddings are made
  uint64_t extent;  // rows of the pass; of kUnpack: bytes read and written
  bool narrow;      // packed weights and fp32 activations; otherwise as the plan keeps them for prompt chunks
};
Family family_of(const StepMark& mark, const model::Config& config);

// Positions of the pass the step belongs to: `count` rows of one sequence from position `first` on. A step with fewer
// rows than that works on the last of them.
struct PassRows {
  uint32_t first = 0;
  uint32_t count = 0;
};

// The least a step has to do: each weight, key and value read once in the form it lies there, activations in and out
// once, the multiplications and additions of the matrix products and of attention.
struct Work {
  double bytes = 0.0;
  double flops = 0.0;
  Work& operator+=(const Work& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};
Work work_of(const StepMark& mark, const PassRows& rows, const model::Model& model, const Plan& plan);

}  // namespace carat::cuda
