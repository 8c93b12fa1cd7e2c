// attention.long=sparse on the demo models. Their context ends where it would begin, so the plan's thresholds are
// scaled down: tiles from position 512 on see their share of 64 blocks instead of 512 and more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/executor/executor_state.h"
#include "parity/demo_model_test.h"
#include "parity/gpu_test.h"
#include "support/recall_task.h"
#include "support/reference_figures.h"
#include "text/tokenizer/detokenizer.h"

namespace carat::exec {
namespace {

// One of so many candidate blocks is kept, besides the first and the two recent ones. 1: all, by the dense kernels.
constexpr uint32_t kDense = 1, kDefault = 8;
constexpr uint32_t kDivisors[] = {kDense, 2, 4, kDefault, 16};

struct Limits {
  const char* file;
  double top1, divergence;  // with the share the plan chooses
  double recall;            // of the codes that dense attention finds
};

class SparseAttentionReferences : public test::GpuTest<Limits> {
 protected:
  void SetUp() override {
    test::GpuTest<Limits>::SetUp();
    if (IsSkipped()) return;
    gpu_ = *cuda::query_gpu();
    if (gpu_.shared_memory < cuda::sparse_attention_shared_memory(4096)) GTEST_SKIP() << "skipped: small card";
    demo_ = test::load_demo_model(GetParam().file);
    if (!demo_) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
  }

  std::unique_ptr<Executor> make(uint32_t divisor) const {
    const bool sparse = divisor != kDense;
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
    cuda::Plan plan = cuda::make_plan(*demo_->model, gpu_, request);
    if (sparse) {
      // The scratch memory was planned for lists of more blocks than these.
      EXPECT_EQ(plan.sparse->divisor, kDefault);
      plan.sparse = cuda::SparseAttention{.from = 512, .first = 1, .recent = 2, .least = 1, .divisor = divisor};
    }
    return std::make_unique<cuda::CudaExecutor>(demo_->model, options, gpu_, plan, nullptr);
  }

  static std::string name(uint32_t divisor) {
    return std::string(GetParam().file) + (divisor == kDense ? " dense" : " 1/" + std::to_string(divisor));
  }

  // Questions whose answer, read from the text the model writes, has the right code.
  size_t found(Executor& executor, const std::vector<test::RecallQuestion>& questions) const {
    constexpr uint32_t kAnswerTokens = 24;
    const auto vocab = text::Vocab::from_metadata(demo_->file->metadata());
    size_t right = 0;
    for (const test::RecallQuestion& question : questions) {
      executor.truncate(0, 0);
      test::feed(executor, 0, question.prompt, 256, question.prompt.size() - 1);
      std::vector<text::TokenId> answer;
      while (answer.size() < kAnswerTokens) {
        std::vector<Candidate> best;
        executor.best(0, 1, best);
        answer.push_back(best.at(0).token);
        executor.forward(std::vector<Row>{{answer.back(), executor.length(0), 0, true}});
      }
      const std::string text = text::decode(vocab, answer);
      right += text.find(" " + question.answer) != std::string::npos;
    }
    return right;
  }

  cuda::GpuFacts gpu_;
  std::optional<test::DemoModel> demo_;
};

TEST_P(SparseAttentionReferences, LongPromptsStayClose) {
  double before = 0.0;
  for (const uint32_t divisor : kDivisors) {
    const auto executor = make(divisor);
    const test::ReferenceFigures figures =
        test::measure_references(*executor, demo_->references, 256, 800, 4096, name(divisor));
    if (divisor <= kDefault) {
      EXPECT_GE(figures.agreement(), GetParam().top1) << name(divisor);
      EXPECT_LE(figures.mean_divergence(), GetParam().divergence) << name(divisor);
    }
    // What is left out can be measured: otherwise nothing was.
    if (divisor == 16) {
      EXPECT_GT(figures.mean_divergence(), before);
    }
    if (divisor == kDense) before = figures.mean_divergence();
  }
}

// Codes are asked for anywhere in lists of 1,500 and 3,500 tokens.
TEST_P(SparseAttentionReferences, CodesAreStillFound) {
  constexpr size_t kQuestions = 40;
  for (const uint32_t lines : {120u, 280u}) {
    const auto questions = test::recall_questions(*demo_->file, lines, kQuestions, lines);
    size_t dense = 0;
    for (const uint32_t divisor : kDivisors) {
      const size_t right = found(*make(divisor), questions);
      std::printf("%s: %zu of %zu codes found in prompts of about %zu tokens\n", name(divisor).c_str(), right,
                  questions.size(), questions[0].prompt.size());
      if (divisor == kDense) {
        dense = right;
        EXPECT_GE(right, kQuestions * 3 / 4) << "the task is one the model can do";
      } else if (divisor <= kDefault) {
        EXPECT_GE(static_cast<double>(right), GetParam().recall * static_cast<double>(dense)) << name(divisor);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DemoModels, SparseAttentionReferences,
                         testing::Values(Limits{"demo-e-q8_0.gguf", 0.75, 7e-2, 0.95},
                                         Limits{"demo-moe-q8_0.gguf", 0.75, 3e-2, 0.95}),
                         test::demo_test_name);

}  // namespace
}  // namespace carat::exec
