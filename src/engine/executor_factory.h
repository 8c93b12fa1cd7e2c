#pragma once

#include <memory>
#include <string_view>

#include "exec/executor.h"
#include "model/model.h"

namespace carat::engine {

enum class Device {
  kAuto,  // the GPU where this build and the machine have one, otherwise the CPU; the log says which and why
  kCpu,
  kGpu,        // an error where there is none
  kReference,  // the slow executable specification
};

// "auto", "cpu", "gpu" or "reference"; throws kBadArgument listing them otherwise.
Device parse_device(std::string_view name);

// Throws kUnsupported for a drafter, and for a device this build does not have.
std::unique_ptr<exec::Executor> make_executor(Device device, std::shared_ptr<const model::Model> model,
                                              const exec::ExecutorOptions& options);

}  // namespace carat::engine
