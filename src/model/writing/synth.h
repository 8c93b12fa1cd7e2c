#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/writing/preset.h"
#include "model/writing/recipe.h"
#include "model/writing/write_control.h"
#include "quant/format.h"

namespace carat::model {

struct SynthOptions {
  std::string preset;
  std::string recipe;
  uint32_t layers = 0;  // 0 here and below: the preset's own
  uint32_t vocabulary = 0;
  uint32_t context = 0;
  uint64_t seed = 1;
  bool hollow = false;  // weights in blocks are zeros that take no room on the disk: enough to plan with
};

// One tensor of a synthetic model: what it is and how its values are drawn.
struct SynthTensor {
  TensorShape shape;
  quant::Format format = quant::Format::kF32;
  float mean = 0.0f;
  float deviation = 0.0f;

  uint64_t bytes() const;
};

// A model that could be written: everything but the weights themselves.
struct SynthModel {
  Preset preset;  // with the layers, vocabulary and context asked for
  Recipe recipe;
  uint64_t seed;
  bool hollow;
  std::vector<SynthTensor> tensors;

  uint64_t parameters() const;
  uint64_t tensor_bytes() const;
};

// Throws kBadArgument naming the option. Writes nothing.
SynthModel plan_synth(const SynthOptions& options);

// Writes the GGUF file. Its bytes depend on the plan only, never on the number of workers. Progress counts tensor
// bytes.
void write_synth(const SynthModel& model, const std::string& path, ThreadPool& pool, const WriteControl& control = {});

}  // namespace carat::model
