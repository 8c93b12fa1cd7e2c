// A model of which the CPU runs the first layers and the GPU the others, against the reference executor and against the
// GPU alone, for every place a model can be cut at.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/plan/split.h"
#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"

namespace carat::exec {
namespace {

using test::prompt_tolerance;
using test::relative_error;

class CudaHybridTest : public test::TinyModelOnGpu {
 protected:
  uint32_t last_split() const { return cuda::last_split(model_->config()); }
  // The executor that leaves the first `split` layers to the CPU; 0: none.
  std::unique_ptr<Executor> make(uint32_t split, const std::string& kernels = "") const {
    ExecutorOptions choice = options(kernels);
    choice.threads = 2;
    choice.gpu_layers = model_->config().L - split;
    auto executor = make_cuda_executor(model_, choice);
    EXPECT_EQ(executor->name(), split == 0 ? "cuda" : "cuda+cpu");
    return executor;
  }
  std::vector<int32_t> tokens(size_t count, uint64_t seed) const {
    return test::random_tokens(model_->config().V, count, seed);
  }
};

TEST_P(CudaHybridTest, EverySplitIsCloseToTheReferenceAndToTheGpuAlone) {
  const auto text = tokens(90, 3);
  const auto reference = make_reference_executor(model_, options());
  const test::Logits expected = test::feed(*reference, 0, text, 128);
  ASSERT_GT(last_split(), 0u);
  for (const uint32_t chunk : {90u, 1u, 5u, 33u}) {  // a prompt, decode, a padded bucket, prompts in pieces
    const test::Logits gpu = test::feed(*make(0), 0, text, chunk);
    for (uint32_t split = 1; split <= last_split(); ++split) {
      const test::Logits hybrid = test::feed(*make(split), 0, text, chunk);
      EXPECT_LT(relative_error(hybrid, expected), prompt_tolerance(GetParam()))
          << "split " << split << " chunk " << chunk;
      EXPECT_LT(relative_error(hybrid, gpu), prompt_tolerance(GetParam())) << "split " << split << " chunk " << chunk;
    }
  }
}

TEST_P(CudaHybridTest, SwitchesDoNotMatter) {
  const auto text = tokens(60, 7);
  const uint32_t split = last_split();
  const auto run = [&](const std::string& kernels, uint32_t chunk) {
    return test::feed(*make(split, kernels), 0, text, chunk);
  };
  const test::Logits decode = run("", 1);
  EXPECT_EQ(relative_error(run("launch=single", 1), decode), 0.0) << "graph or not: the same kernels";
  EXPECT_EQ(relative_error(run("overlap=off", 1), decode), 0.0) << "overlap changes when, not what";
  EXPECT_LT(relative_error(run("decode=gemm", 1), decode), prompt_tolerance(GetParam()));
  // The same bf16 values in every layer; only the LM head of many rows runs another way without a copy of its weights.
  EXPECT_LT(relative_error(run("gemm.weights=unpacked", 60), run("", 60)), prompt_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaHybridTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
