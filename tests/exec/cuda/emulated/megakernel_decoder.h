#pragma once

// Decode of single rows by the token kernel on the emulated machine: weights, stages, buffers and caches are made by
// the code that makes them for the card.
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/cuda/passes/megakernel_program.h"
#include "model/model.h"

namespace carat::cuda::emulated {

class MegakernelDecoder {
 public:
  struct Chip {
    uint32_t blocks = 4;  // SMs
    uint32_t shared_memory = 227 * 1024;
  };
  MegakernelDecoder(std::shared_ptr<const model::Model> model, uint32_t context, uint32_t sequences, Chip chip);

  // The logits of a token. `seed`: the order in which threads run.
  std::vector<float> step(int32_t token, uint32_t position, uint32_t sequence, uint64_t seed);

  const MegakernelProgram& program() const { return program_; }
  bool found_non_finite() const { return non_finite_ != 0; }
  // Fills all caches with random keys and values, as a prompt of so many tokens would. The next positions' are NaN.
  void fill_caches(uint32_t length, uint64_t seed);

 private:
  std::shared_ptr<const model::Model> model_;
  Chip chip_;
  uint32_t sequences_;
  model::KvGeometry geometry_;
  DeviceWeights weights_;
  DeviceMemory exchanged_, cache_memory_;
  MegakernelBuffers buffers_{};
  std::vector<KvView> caches_;
  std::vector<double> frequencies_;
  std::vector<float> logits_;
  uint32_t non_finite_ = 0;
  MegakernelProgram program_;
  MegakernelJob job_{};
};

}  // namespace carat::cuda::emulated
