#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "exec/cpu_layers.h"
#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec {

// Runs a model on the CPU: integer dot products on the weights as the file stores them, all cores, the widest vector
// instructions the machine has (slot "dot" of the kernel choices picks others; slot "activations" how activations are
// rounded). Keys and values are kept as F16, F32 or Q8_0.
//
// The logits of a row are the same bits whatever batch it came in, whatever the number of threads, and with or without
// the KV-share shortcut; they may differ between instruction sets by rounding. Nothing is allocated by forward().
//
// `observer` sees what matrices are multiplied with: one call for each row of each product, with the place in the file
// where the matrix (of an expert: its own) begins.
using ProductObserver = std::function<void(const std::byte* weights, std::span<const float> input)>;
std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                            ProductObserver observer = {});

}  // namespace carat::exec
