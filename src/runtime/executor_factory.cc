#include "runtime/executor_factory.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/reference/reference_executor.h"
#ifdef CARAT_HAVE_CUDA
#include "exec/cuda/executor/cuda_executor.h"
#endif

namespace carat::runtime {

namespace {
#ifdef CARAT_HAVE_CUDA
// Whoever built for GPUs expects one to be used.
constexpr spdlog::level::level_enum kNoGpu = spdlog::level::warn;
std::unique_ptr<exec::Executor> make_gpu(std::shared_ptr<const model::Model> model,
                                         const exec::ExecutorOptions& options, const LoadProgress& progress) {
  return exec::make_cuda_executor(std::move(model), options, progress);
}
#else
constexpr spdlog::level::level_enum kNoGpu = spdlog::level::info;
std::unique_ptr<exec::Executor> make_gpu(std::shared_ptr<const model::Model>, const exec::ExecutorOptions&,
                                         const LoadProgress&) {
  fail(ErrorCode::kUnsupported,
       "this build of carat has no GPU support; configure with CARAT_CUDA=ON where nvcc is installed, or use --device "
       "cpu");
}
#endif

// Only the CUDA executor plans its memory; the others take the default.
exec::ExecutorOptions with_chunk(exec::ExecutorOptions options) {
  if (options.chunk == 0) {
    options.chunk = std::max(std::min(exec::kDefaultChunk, options.context), options.sequences);
  }
  return options;
}

std::unique_ptr<exec::Executor> make_auto(std::shared_ptr<const model::Model> model,
                                          const exec::ExecutorOptions& options, const LoadProgress& progress) {
  try {
    return make_gpu(model, options, progress);
  } catch (const Error& error) {
    // No usable GPU is an answer to "auto", and so is one that is too small for any part of the model as long as the
    // number of layers was left open; what was asked for is not dropped.
    const bool too_small = error.code() == ErrorCode::kOutOfMemory && !options.gpu_layers;
    if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kDevice && !too_small) throw;
    if (options.log) options.log->log(kNoGpu, "using the CPU: {} (with --device cpu nothing is said)", error.what());
  }
  return exec::make_cpu_executor(std::move(model), with_chunk(options));
}
}  // namespace

Device parse_device(std::string_view name) {
  if (name == "auto") return Device::kAuto;
  if (name == "cpu") return Device::kCpu;
  if (name == "gpu") return Device::kGpu;
  if (name == "reference") return Device::kReference;
  fail(ErrorCode::kBadArgument, "--device {}: known are auto, cpu, gpu and reference", name);
}

std::unique_ptr<exec::Executor> make_executor(Device device, std::shared_ptr<const model::Model> model,
                                              const exec::ExecutorOptions& options, const LoadProgress& progress) {
  if (model->config().is_drafter()) {
    fail(ErrorCode::kUnsupported, "{} is a drafter ({}): it only proposes tokens for a full model and cannot run alone",
         model->file().path(), model->config().architecture);
  }
  switch (device) {
    case Device::kCpu:
      return exec::make_cpu_executor(std::move(model), with_chunk(options));
    case Device::kGpu:
      return make_gpu(std::move(model), options, progress);
    case Device::kReference:
      return exec::make_reference_executor(std::move(model), with_chunk(options));
    case Device::kAuto:
      break;
  }
  return make_auto(std::move(model), options, progress);
}

}  // namespace carat::runtime
