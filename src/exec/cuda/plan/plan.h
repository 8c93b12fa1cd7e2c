#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/cuda/device/facts.h"
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/plan/gemm_choice.h"
#include "exec/cuda/plan/sparse_attention.h"
#include "exec/cuda/plan/split.h"
#include "exec/cuda/weights/placement.h"
#include "exec/cuda/weights/product_path.h"
#include "exec/kernel_choice.h"
#include "model/kv_geometry.h"
#include "model/model.h"

namespace carat::cuda {

struct PlanRequest {
  uint32_t context = 4096;
  uint32_t sequences = 1;
  uint32_t chunk = 0;  // 0: the plan chooses
  uint32_t outputs = 64;
  std::optional<uint32_t> gpu_layers;  // none: all where they fit, otherwise as many as do
  quant::Format kv_format = quant::Format::kF16;
  exec::KernelChoices kernels;
};

// One slot of the kernel registry with the name chosen for it.
struct KernelDecision {
  std::string slot, name, reason;
};

struct KvGroupPlan {
  bool sliding;
  uint32_t layers, Hkv, hd;
  uint32_t cells;  // of one sequence
  uint64_t bytes;  // K and V of all these layers and sequences
};

// What will be on the GPU and how it will run: a pure function of model, GPU and wishes, printed before anything is
// loaded and then carried out as it is.
struct Plan {
  uint32_t context = 0, sequences = 0, chunk = 0, outputs = 0;
  quant::Format kv_format = quant::Format::kF16;  // or Q8_0
  WeightPlacement placement;
  GemmChoice gemm;
  bool dequantise = false;         // products without bf16 copies dequantise their weights themselves (wgmma)
  bool search = false;             // the library's algorithms are timed at load where they were not before
  bool warpgroup_experts = false;  // expert products by wgmma; otherwise by mma.sync on bf16 weights
  ProductPaths products;           // what the products of each group read its weights as
  SplitPlan split;
  bool use_graphs = true;                     // of decode steps
  bool prompt_graphs = true;                  // of small prompt chunks
  uint32_t ple_cache_rows = 0;                // of the per-layer-embedding table, in device memory; 0: all of it is
  bool overlap = true;                        // programmatic dependent launch
  bool use_megakernel = false;                // a single row by the token kernel
  bool use_gemv = true;                       // decode by matrix-vector kernels; otherwise by matrix products
  uint32_t skinny_from = 0, skinny_rows = 0;  // decode steps of this many rows run batched; 0: none do
  bool step_heads = false;                    // attention makes its heads itself in steps of several sequences
  bool cluster_ple = false;                   // the end of a layer is one kernel in steps of several sequences
  bool warpgroup_attention = false;           // of prompts, where the heads' size has it; otherwise by mma.sync
  uint32_t attention_shared_memory = 0;       // bytes a block of prompt attention may take; decides its tiles
  std::optional<SparseAttention> sparse;      // how long prompts choose their keys; none: they see all
  WeightBytes weights;
  std::vector<KvGroupPlan> kv;  // of the layers on the GPU
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;  // unpack_bytes included
  uint64_t unpack_bytes = 0;   // for the bf16 weights of one product where there are neither copies nor mmq nor fp8
  uint64_t workspace_bytes = 0;
  uint64_t reserve_bytes = 0;  // left for the driver and other programs
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool fits = false;
  // Multiples of 64 positions up to what the model was trained for; 0: not even the smallest fits.
  uint32_t largest_context = 0;      // for which a plan with as many layers on the GPU fits
  uint32_t largest_context_now = 0;  // with this plan's placement and chunk unchanged
  std::vector<KernelDecision> kernels;
  std::string chunk_reason;
  std::string table_reason;  // where the per-layer-embedding table is and why; empty where the model has none

  // Bytes on the GPU that are the model's weights in any form.
  uint64_t weights_on_device() const {
    return weights.packed + weights.vectors + weights.copies(placement) +
           (placement.ple_on_device ? weights.ple_table : 0);
  }
};

// From the most comfortable placement to the tightest, the first that fits: bf16 copies of the weights (where products
// read any) and large chunks; smaller chunks; no copies; the per-layer-embedding table in host memory; smaller chunks
// again; and then, unless the number of layers was asked for, one layer after the other on the CPU. A context that was
// asked for is never cut: a plan that does not fit says so (fits) and holds the figures of the tightest placement.
// e4m3 copies are never given up: they were asked for, so where they do not fit that is an error.
// Throws kUnsupported for a GPU, model or type of the cache the kernels cannot run, kBadArgument for a kernel wish this
// GPU cannot grant and for 0 layers.
Plan make_plan(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request);

AttentionShape shape_of(const model::Config& config, const model::Layer& layer);
// Of the caches on the GPU: whole tiles of kKvTile positions.
model::KvGeometry kv_geometry(const model::Config& config, uint32_t context, uint32_t chunk);
// Sequences that the caches on the GPU have room for: one more than were asked for, to which the rows write that pad
// the graph of a decode step to its bucket.
constexpr uint32_t cached_sequences(uint32_t sequences) { return sequences + 1; }
uint64_t attention_partial_elements(const model::Config& config, const Plan& plan, uint32_t sm_count);
uint32_t attention_counters(const model::Config& config, const Plan& plan);
// Whether prompts' attention of layers of this shape is by warpgroups: not where long prompts choose their keys.
bool attention_by_warpgroups(const Plan& plan, const AttentionShape& shape);

}  // namespace carat::cuda
