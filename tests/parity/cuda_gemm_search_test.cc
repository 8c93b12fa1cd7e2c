// Algorithms of matrix products chosen at load: kept from one load to the next, and never a reason for other results
// than rounding allows.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "exec/cuda/executor/executor_state.h"
#include "parity/gpu_test.h"
#include "support/files.h"

namespace carat::cuda {
namespace {

namespace fs = std::filesystem;
using test::TinyKind;

class CudaGemmSearchTest : public test::TinyModelOnGpu {
 protected:
  std::unique_ptr<CudaExecutor> make(const std::string& kernels, const fs::path& folder) const {
    exec::ExecutorOptions options = test::TinyModelOnGpu::options("gemm=cublas,gemm.weights=resident," + kernels);
    options.cache_folder = folder;
    return make_executor(model_, options, nullptr);
  }
  // The last rows of prompts of searched and other lengths, each often enough to run as a recorded graph.
  test::Logits prompts(CudaExecutor& executor) const {
    test::Logits logits;
    for (const uint32_t length : {128u, 64u, 100u, 64u, 128u, 64u, 128u}) {
      executor.truncate(0, 0);
      const auto tokens = test::random_tokens(model_->config().V, length, length);
      for (auto& row : test::feed(executor, 0, tokens, 128, length - 1)) logits.push_back(std::move(row));
    }
    return logits;
  }

  test::TemporaryDirectory folder_;
};

TEST_P(CudaGemmSearchTest, ASecondLoadSearchesNothing) {
  const auto off = make("gemm.search=off", folder_.path());
  EXPECT_EQ(off->search_report().searched + off->search_report().known, 0u);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  const auto first = make("gemm.search=on", folder_.path());
  const auto report = first->search_report();
  EXPECT_GT(report.searched, 3u);
  EXPECT_EQ(report.known, 0u);
  uint32_t left = report.postponed, known = report.searched;
  for (int load = 0; left > 0 && load < 5; ++load) {
    const auto next = make("gemm.search=on", folder_.path());
    EXPECT_EQ(next->search_report().known, known);
    known += next->search_report().searched;
    left = next->search_report().postponed;
  }
  const auto last = make("gemm.search=on", folder_.path());
  EXPECT_EQ(last->search_report().searched, 0u);
  EXPECT_EQ(last->search_report().known, known);
  const test::Logits kept = prompts(*last);
  if (report.postponed == 0) {
    EXPECT_EQ(test::relative_error(prompts(*first), kept), 0.0);
  }
  EXPECT_LT(test::relative_error(kept, prompts(*off)), test::prompt_tolerance(GetParam()));
  // Graphs hold the same algorithms as the first, unrecorded pass of their length.
  EXPECT_EQ(kept.front(), kept.back());
}

TEST_P(CudaGemmSearchTest, WithoutAFolderNothingIsMeasured) {
  EXPECT_EQ(make("gemm.search=on", {})->search_report().searched, 0u);
}

TEST_P(CudaGemmSearchTest, ACacheThatCannotBeUsedIsNoError) {
  test::write_text(folder_.file("file"), "not a folder");
  const auto unwritable = make("gemm.search=on", folder_.path() / "file");
  EXPECT_GT(unwritable->search_report().searched, 0u);
  make("gemm.search=on", folder_.path() / "cache");
  for (const auto& entry : fs::directory_iterator(folder_.path() / "cache")) {
    test::write_text(entry.path().string(), "damaged");
  }
  EXPECT_GT(make("gemm.search=on", folder_.path() / "cache")->search_report().searched, 0u);
  EXPECT_EQ(make("gemm.search=on", folder_.path() / "cache")->search_report().postponed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaGemmSearchTest, testing::Values(TinyKind::kE4B, TinyKind::k12B, TinyKind::k26B),
                         test::tiny_test_name);

}  // namespace
}  // namespace carat::cuda
