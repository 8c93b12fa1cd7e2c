#pragma once

// What the token kernel does for a model: the list of stages its blocks walk, made once when the executor is. Nothing
// of it needs a GPU.
#include <cstdint>
#include <span>
#include <vector>

#include "exec/cuda/buffers.h"
#include "exec/cuda/kernels/token.h"
#include "exec/cuda/profile_steps.h"
#include "exec/cuda/weights/device_weights.h"
#include "model/config.h"

namespace carat::cuda {

// What stages refer to.
struct TokenModel {
  const model::Config& config;
  const DeviceWeights& weights;
  const TokenBuffers& buffers;
  std::span<const KvView> caches;  // by the layers that own them
  const double* frequencies;       // of rotations: of sliding layers, then of global ones
  uint32_t pairs_sliding, pairs_global;
  float* logits;
};

struct TokenProgram {
  std::vector<TokenStage> stages;
  std::vector<StepMark> marks;  // what each stage counts as in a profile
  TokenMemory memory;
  TokenBuild needs;  // what the kernel has to be able to do
};

// For a chip of `blocks` SMs whose blocks can have so much shared memory.
TokenProgram token_program(const TokenModel& model, uint32_t blocks, uint32_t shared_memory);

// A token by this program, whose stages are in the buffers: what is the same for all tokens.
TokenJob token_job(const TokenModel& model, const TokenProgram& program);

}  // namespace carat::cuda
