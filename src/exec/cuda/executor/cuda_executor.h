#pragma once

#include <functional>
#include <memory>

#include "exec/executor.h"

namespace carat::exec {

// Whether this build and machine can run make_cuda_executor; the reason in `why` when not.
bool cuda_available(std::string* why = nullptr);

// Loads the model onto the GPU. options.chunk 0: as the plan chooses. options.gpu_layers none: as many layers as fit,
// the first ones running on the CPU otherwise, which the log says together with what it costs. Throws kOutOfMemory with
// the plan's figures when what was asked for does not fit.
std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                             const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace carat::exec
