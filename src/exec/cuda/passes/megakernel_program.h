#pragma once

// What the token kernel does for a model: the list of stages its blocks walk, made once when the executor is. Nothing
// of it needs a GPU.
#include <cstdint>
#include <span>
#include <vector>

#include "exec/cuda/kernels/megakernel/megakernel.h"
#include "exec/cuda/plan/buffers.h"
#include "exec/cuda/profile/profile_steps.h"
#include "exec/cuda/weights/device_weights.h"
#include "model/config.h"

namespace carat::cuda {

// What stages refer to.
struct MegakernelModel {
  const model::Config& config;
  const DeviceWeights& weights;
  const MegakernelBuffers& buffers;
  std::span<const KvView> caches;  // by the layers that own them
  const double* frequencies;       // of rotations: of sliding layers, then of global ones
  uint32_t pairs_sliding, pairs_global;
  float* logits;
};

struct MegakernelProgram {
  std::vector<MegakernelStage> stages;
  std::vector<StepMark> marks;  // what each stage counts as in a profile
  MegakernelMemory memory;
  MegakernelBuild needs;  // what the kernel has to be able to do
};

// For a chip of `blocks` SMs whose blocks can have so much shared memory.
MegakernelProgram megakernel_program(const MegakernelModel& model, uint32_t blocks, uint32_t shared_memory);

// A token by this program, whose stages are in the buffers: what is the same for all tokens.
MegakernelJob megakernel_job(const MegakernelModel& model, const MegakernelProgram& program);

}  // namespace carat::cuda
