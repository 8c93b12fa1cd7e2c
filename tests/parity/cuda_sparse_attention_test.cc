// attention.long=sparse on the demo models. Their context ends where it would begin, so the plan's thresholds are
// scaled down to the same shares of a shorter prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/executor_state.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "support/demo_models.h"
#include "support/executor_runs.h"
#include "support/reference_figures.h"

namespace carat::exec {
namespace {

struct Limits {
  const char* file;
  double top1, divergence;
};

class SparseAttentionReferences : public testing::TestWithParam<Limits> {
 protected:
  void SetUp() override {
    std::string why;
    const auto gpu = cuda::query_gpu(&why);
    if (!gpu) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
    gpu_ = *gpu;
    if (gpu_.shared_memory < cuda::sparse_attention_shared_memory(4096)) GTEST_SKIP() << "skipped: small card";
    const auto path = test::find_demo_model(GetParam().file);
    if (!path) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
    model_ = model::Model::load(gguf::ModelFile::open(*path));
    references_ = test::load_references(GetParam().file);
  }

  std::unique_ptr<Executor> make(bool sparse) const {
    ExecutorOptions options;
    options.context = 4096;
    options.chunk = 256;
    options.outputs = 256;
    options.kv_share_shortcut = false;  // with it the prompts of demo-e would end before their first global attention
    if (sparse) options.kernels = KernelChoices::parse("attention.long=sparse");
    cuda::PlanRequest request;
    request.context = options.context;
    request.chunk = options.chunk;
    request.outputs = options.outputs;
    request.kernels = options.kernels;
    cuda::Plan plan = cuda::make_plan(*model_, gpu_, request);
    if (sparse) {
      // 4,096 positions are 64 blocks: an eighth of them, and local ones, as a prompt of 32,768 would see.
      plan.sparse = cuda::SparseAttention{.from = 512, .first = 1, .recent = 2, .least = 8, .divisor = 8};
    }
    return std::make_unique<cuda::CudaExecutor>(model_, options, gpu_, plan, nullptr);
  }

  cuda::GpuFacts gpu_;
  std::shared_ptr<const model::Model> model_;
  std::vector<test::Reference> references_;
};

TEST_P(SparseAttentionReferences, LongPromptsStayClose) {
  for (const bool sparse : {false, true}) {
    const std::string what = std::string(GetParam().file) + (sparse ? " sparse" : " dense");
    const auto executor = make(sparse);
    const test::ReferenceFigures figures = test::measure_references(*executor, references_, 256, 800, 4096, what);
    EXPECT_GE(figures.agreement(), GetParam().top1) << what;
    EXPECT_LE(figures.mean_divergence(), GetParam().divergence) << what;
  }
}

// The long prompts ask for something said far before.
TEST_P(SparseAttentionReferences, LongPromptsAreAnsweredTheSame) {
  for (const bool sparse : {false, true}) {
    const auto executor = make(sparse);
    size_t prompts = 0, same = 0;
    for (const test::Reference& reference : references_) {
      if (reference.tokens.size() < 800) continue;
      executor->truncate(0, 0);
      test::feed(*executor, 0, reference.tokens, 256, reference.tokens.size() - 1);
      ++prompts;
      bool equal = true;
      for (size_t t = 0; t < reference.greedy.size() && equal; ++t) {
        std::vector<Candidate> best;
        executor->best(0, 1, best);
        equal = best.at(0).token == reference.greedy[t] || reference.gaps[t] < 0.05f;
        const auto position = static_cast<uint32_t>(reference.tokens.size() + t);
        executor->forward(std::vector<Row>{{reference.greedy[t], position, 0, true}});
      }
      same += equal;
    }
    std::printf("%s %s: %zu of %zu long prompts answered the same\n", GetParam().file, sparse ? "sparse" : "dense",
                same, prompts);
    ASSERT_GT(prompts, 0u);
    if (!sparse) {
      EXPECT_EQ(same, prompts);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DemoModels, SparseAttentionReferences,
                         testing::Values(Limits{"demo-e-q8_0.gguf", 0.85, 5e-3},
                                         Limits{"demo-moe-q8_0.gguf", 0.85, 5e-3}),
                         [](const testing::TestParamInfo<Limits>& parameter) {
                           std::string name = parameter.param.file;
                           name.resize(name.find('.'));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace carat::exec
