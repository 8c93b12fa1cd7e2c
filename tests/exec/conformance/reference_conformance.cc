#include "exec/conformance/executor_conformance.h"
#include "exec/reference/reference_executor.h"

namespace carat::exec {
namespace {

ExecutorUnderTest reference() {
  ExecutorUnderTest executor;
  executor.instance = executor.executor_name = "reference";
  executor.make = [](auto model, const auto& options) { return make_reference_executor(std::move(model), options); };
  executor.weights = quant::Format::kF32;
  executor.widths = 16;
  executor.cache = quant::Format::kF32;  // asked for F16, and honest about it
  executor.from_reference = [](test::TinyKind, uint32_t) { return 0.0; };
  return executor;
}

INSTANTIATE_TEST_SUITE_P(Reference, ExecutorConformance,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds), testing::Values(reference())),
                         conformance_name);

}  // namespace
}  // namespace carat::exec
