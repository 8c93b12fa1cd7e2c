#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec {

// The first layers of a model on the CPU, for an executor that runs the others elsewhere: the one thing executors
// share, so it is declared above them (exec/cpu implements it). It keeps their keys and values but no lengths of
// sequences: its owner checks the rows (SequenceTable), and rows that come again at a position replace what was there.
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
