#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "exec/executor.h"
#include "model/model.h"

namespace carat::runtime {

enum class Device {
  kAuto,  // the GPU where this build and the machine have one, otherwise the CPU; the log says which and why
  kCpu,
  kGpu,        // an error where there is none
  kReference,  // the slow executable specification
};

// "auto", "cpu", "gpu" or "reference"; throws kBadArgument listing them otherwise.
Device parse_device(std::string_view name);

// Called with bytes of the model now and then while they are brought to where they are computed with. An executor that
// works on the file itself never calls it.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

// options.chunk 0: the executor's choice, to be read from its options(). Throws kUnsupported for a drafter, and for a
// device this build does not have.
std::unique_ptr<exec::Executor> make_executor(Device device, std::shared_ptr<const model::Model> model,
                                              const exec::ExecutorOptions& options, const LoadProgress& progress = {});

// make_executor, or what a test has in its place.
using ExecutorMaker =
    std::function<std::unique_ptr<exec::Executor>(Device device, std::shared_ptr<const model::Model> model,
                                                  const exec::ExecutorOptions& options, const LoadProgress& progress)>;

}  // namespace carat::runtime
