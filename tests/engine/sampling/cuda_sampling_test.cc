// Tokens chosen from candidates that were selected on the GPU are those chosen from all logits on the CPU, and a text
// whose passes run in the background is the one of passes that are waited for.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/logits_executor.h"
#include "exec/cuda/executor/cuda_executor.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::engine {
namespace {

class CudaSamplingTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!exec::cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  }
  static exec::ExecutorOptions options() {
    exec::ExecutorOptions options;
    options.context = 128;
    options.sequences = 3;
    options.chunk = 64;
    return options;
  }
  static std::vector<SamplingOptions> choices() {
    std::vector<SamplingOptions> all(6);
    all[0].temperature = 0.0f;
    all[1].temperature = 0.7f;
    all[2].top_k = 1000, all[2].top_p = 0.99f;
    all[3].top_k = 0, all[3].min_p = 0.01f;  // looks at the whole vocabulary
    all[4].repeat_penalty = 1.3f, all[4].presence_penalty = 0.5f, all[4].frequency_penalty = 0.2f;
    all[5].bias = {{3, 4.0f}, {17, -4.0f}}, all[5].top_k = 20;
    return all;
  }
};

TEST_F(CudaSamplingTest, CandidatesFromTheDeviceGiveTheSameTokens) {
  const auto model = test::tiny_model(test::TinyKind::kE4B);
  const uint32_t V = model->config().V;
  const auto executor = exec::make_cuda_executor(model, options());
  const std::vector<int32_t> tokens = test::random_tokens(V, 24, 1);
  for (uint32_t position = 0; position < tokens.size(); ++position) {
    const exec::Row row{tokens[position], position, 0, true};
    executor->forward({&row, 1});
    const auto logits = executor->logits(0);
    test::LogitsExecutor on_host(std::vector<float>(logits.begin(), logits.end()));
    for (SamplingOptions sampling : choices()) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        sampling.seed = seed;
        Sampler device(sampling, V, {}), host(sampling, V, {});
        device.accept(std::span(tokens).first(position + 1));
        host.accept(std::span(tokens).first(position + 1));
        ASSERT_EQ(device.sample(*executor, 0, position), host.sample(on_host, 0, position))
            << "position " << position << ", seed " << seed << ", temperature " << sampling.temperature << ", top k "
            << sampling.top_k;
      }
    }
  }
}

TEST_F(CudaSamplingTest, PassesInTheBackgroundGiveTheSameTexts) {
  const auto model = test::tiny_model(test::TinyKind::kE4B);
  const auto vocab = text::Vocab::from_metadata(model->file().metadata());
  const std::vector<SamplingOptions> all = choices();
  for (size_t i = 0; i < all.size(); ++i) {
    Request request;
    request.prompt = test::random_tokens(model->config().V, 20, i);
    request.max_tokens = 40;
    request.ignore_stops = true;
    request.sampling = all[i];
    request.sampling.seed = i;

    Engine engine(exec::make_cuda_executor(model, options()), vocab);
    ASSERT_TRUE(engine.executor().runs_in_background());
    const auto sequence = engine.submit(request);
    engine.run();

    // Pass by pass, as a loop without an engine has it.
    const auto executor = exec::make_cuda_executor(model, options());
    Sampler sampler(request.sampling, model->config().V, vocab->suppressed());
    sampler.accept(request.prompt);
    test::feed(*executor, 0, std::span<const int32_t>(request.prompt), 64, 19);
    std::vector<text::TokenId> expected;
    for (uint32_t n = 0; n < request.max_tokens; ++n) {
      expected.push_back(sampler.sample(*executor, 0, n));
      sampler.accept(expected.back());
      const exec::Row row{expected.back(), 20 + n, 0, true};
      executor->forward({&row, 1});
    }
    EXPECT_EQ(std::vector<text::TokenId>(sequence->generated().begin(), sequence->generated().end()), expected)
        << "choice " << i;
  }
}

}  // namespace
}  // namespace carat::engine
