#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec {

// Runs a model on the CPU: integer dot products on the weights as the file stores them, all cores, the widest vector
// instructions the machine has (slot "dot" of the kernel choices picks others; slot "activations" how activations are
// rounded). Keys and values are kept as F16 or F32.
//
// The logits of a row are the same bits whatever batch it came in, whatever the number of threads, and with or without
// the KV-share shortcut; they may differ between instruction sets by rounding. Nothing is allocated by forward().
std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options);

// The first layers of a model, for an executor that runs the others elsewhere. It keeps their keys and values but no
// lengths of sequences: its owner checks the rows (SequenceTable), and rows that come again at a position replace what
// was there.
class CpuLayers {
 public:
  virtual ~CpuLayers() = default;
  // The residual stream [rows, d] after the last of the layers, valid until the next call. Throws kInterrupted when
  // options.cancelled is set.
  virtual std::span<const float> run(std::span<const Row> rows) = 0;
};
// Layers [0, count). No row is dropped on the way, so `count` must not exceed the number of layers that own keys and
// values.
std::unique_ptr<CpuLayers> make_cpu_layers(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                           uint32_t count);

}  // namespace carat::exec
