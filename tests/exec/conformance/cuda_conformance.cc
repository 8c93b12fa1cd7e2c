#include "exec/conformance/executor_conformance.h"
#include "exec/cuda/executor/cuda_executor.h"
#include "exec/cuda/plan/split.h"
#include "support/logit_error.h"

namespace carat::exec {
namespace {

ExecutorUnderTest on_gpu() {
  ExecutorUnderTest executor;
  executor.instance = executor.executor_name = "cuda";
  executor.make = [](auto model, const auto& options) { return make_cuda_executor(std::move(model), options); };
  executor.missing = [] {
    std::string why;
    return cuda_available(&why) ? "" : "no GPU (" + why + ")";
  };
  executor.prompt = 300;
  executor.pass_sizes = {1, 2, 3, 7, 8, 9, 31, 33, 64, 127};  // on both sides of every bucket and kind of pass
  executor.same_bits = false;
  executor.between_passes = test::prompt_tolerance;
  executor.from_reference = [](test::TinyKind kind, uint32_t rows) {
    return rows > 8   ? test::prompt_tolerance(kind)
           : rows > 4 ? test::skinny_tolerance(kind)
                      : test::gemv_tolerance(kind);
  };
  return executor;
}

// The first `layers` layers on the CPU; as many as can be, when there are fewer.
ExecutorUnderTest hybrid(const char* instance, uint32_t layers) {
  ExecutorUnderTest executor = on_gpu();
  executor.instance = instance;
  executor.executor_name = "cuda+cpu";
  executor.make = [layers](auto model, ExecutorOptions options) {
    const model::Config& config = model->config();
    if (!config.is_drafter()) options.gpu_layers = config.L - std::min(layers, cuda::last_split(config));
    return make_cuda_executor(std::move(model), options);
  };
  executor.from_reference = [](test::TinyKind kind, uint32_t) { return test::prompt_tolerance(kind); };
  return executor;
}

INSTANTIATE_TEST_SUITE_P(Cuda, ExecutorConformance,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds), testing::Values(on_gpu())),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(Hybrid, ExecutorConformance,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds),
                                          testing::Values(hybrid("one_layer_on_cpu", 1),
                                                          hybrid("most_layers_on_cpu", UINT32_MAX))),
                         conformance_name);

}  // namespace
}  // namespace carat::exec
