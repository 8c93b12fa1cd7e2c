#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/cuda/device/facts.h"
#include "exec/executor.h"
#include "exec/cuda/weights/device_weights.h"
#include "model/model.h"

namespace carat::cuda {

struct PlanRequest {
  uint32_t context = 4096;
  uint32_t sequences = 1;
  uint32_t chunk = 0;      // 0: the plan chooses
  uint32_t outputs = 64;
  exec::KernelChoices kernels;
};

struct KernelDecision {
  std::string slot, name, reason;
};

struct KvGroupPlan {
  bool sliding;
  uint32_t layers, Hkv, hd, slots;
  uint64_t bytes;
};

// What will be on the GPU and how it will run: a pure function of model, GPU and wishes, printed before anything is
// loaded and then carried out as it is.
struct Plan {
  uint32_t context, sequences, chunk, outputs;
  WeightPlacement placement;
  bool use_graphs = true;
  bool overlap = true;             // programmatic dependent launch
  bool use_matvec = true;          // decode by matrix-vector kernels; otherwise by matrix products
  WeightBytes weights;
  std::vector<KvGroupPlan> kv;
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t reserve_bytes = 0;      // left for the driver and other programs
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool fits = false;
  uint32_t largest_context = 0;    // that fits with everything else unchanged
  std::vector<KernelDecision> kernels;
};

Plan make_plan(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request);

// Slots per sequence of an owner layer: whole tiles of 64 positions.
uint32_t kv_slots(const model::Config& config, const model::Layer& layer, uint32_t context, uint32_t chunk);
uint64_t attention_partial_elements(const model::Config& config, const Plan& plan, uint32_t sm_count);
uint32_t attention_counters(const model::Config& config, const Plan& plan);

}  // namespace carat::cuda
