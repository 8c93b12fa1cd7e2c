#include <fmt/format.h>

#include "exec/conformance/executor_conformance.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/simd/instruction_set.h"

namespace carat::exec {
namespace {

// One for each instruction set of the machine. Some widths are no multiple of 32, so the kernels for floats take part
// beside those for integers.
std::vector<ExecutorUnderTest> cpu_executors() {
  std::vector<ExecutorUnderTest> executors;
  for (const cpu::KernelTable* table : cpu::usable_kernels()) {
    ExecutorUnderTest executor;
    executor.instance = fmt::format("cpu_{}", table->name);
    executor.executor_name = "cpu";
    executor.make = [kernels = fmt::format("dot={}", table->name)](auto model, ExecutorOptions options) {
      options.kernels = KernelChoices::parse(kernels);
      return make_cpu_executor(std::move(model), options);
    };
    // Three times the largest error seen; a rounding that changes an expert moves single rows by much more.
    executor.from_reference = [](test::TinyKind kind, uint32_t) { return kind == test::TinyKind::k26B ? 0.1 : 0.004; };
    executors.push_back(std::move(executor));
  }
  return executors;
}

INSTANTIATE_TEST_SUITE_P(Cpu, ExecutorConformance,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds), testing::ValuesIn(cpu_executors())),
                         conformance_name);

}  // namespace
}  // namespace carat::exec
