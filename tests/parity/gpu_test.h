#pragma once

// What tests of the CUDA executor share: skipping where there is no GPU, and tiny models of all kinds.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/executor/cuda_executor.h"
#include "support/executor_runs.h"
#include "support/logit_error.h"
#include "support/tiny_model.h"

namespace carat::test {

template <typename Parameter>
class GpuTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    std::string why;
    if (!exec::cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  }
};

class TinyModelOnGpu : public GpuTest<TinyKind> {
 protected:
  void SetUp() override {
    GpuTest<TinyKind>::SetUp();
    if (!IsSkipped()) model_ = model_in(quant::Format::kQ8_0);
  }

  static exec::ExecutorOptions options(const std::string& kernels = "") {
    exec::ExecutorOptions options;
    options.context = 384;
    options.sequences = 3;
    options.chunk = 128;
    options.outputs = 128;
    options.kernels = exec::KernelChoices::parse(kernels);
    return options;
  }
  // As wide as the blocks of the format need it to be.
  static std::shared_ptr<const model::Model> model_in(quant::Format format) {
    const uint32_t block = quant::info(format).block;
    return tiny_model(GetParam(), format == quant::Format::kF32 ? 16 : std::max(block, 32u), format);
  }
  static Logits run(const std::shared_ptr<const model::Model>& model, std::span<const int32_t> tokens, uint32_t chunk,
                    const std::string& kernels = "") {
    return feed(*exec::make_cuda_executor(model, options(kernels)), 0, tokens, chunk);
  }
  // What is measured is also printed: the tolerances are made from it.
  static double print(quant::Format format, uint32_t chunk, const std::string& kernels, double error) {
    std::printf("%s %s chunk %u %s: relative error %.2e\n", std::string(tiny_name(GetParam())).c_str(),
                std::string(quant::info(format).name).c_str(), chunk, kernels.c_str(), error);
    return error;
  }

  std::shared_ptr<const model::Model> model_;  // in Q8_0
};

}  // namespace carat::test
