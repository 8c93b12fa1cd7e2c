// Chunks of prompts as replays of graphs, and per-layer embeddings through the cache of their rows: the same kernels
// over the same values, so the same bits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"

namespace carat::exec {
namespace {

class CudaPromptTest : public test::TinyModelOnGpu {
 protected:
  std::unique_ptr<Executor> make(const std::string& kernels) const {
    return make_cuda_executor(model_, options(kernels));
  }
};

// Prompts of all sequences in passes of `chunk` rows, again and again; of each prompt the logits of its last row.
// Lengths share buckets, end ragged, and begin at depths a graph was not recorded at.
test::Logits run_prompts(Executor& executor, uint32_t chunk) {
  test::Logits logits;
  for (const uint32_t length : {100u, 97u, 120u, 30u, 17u, 100u, 31u, 110u, 250u, 9u}) {
    for (uint32_t sequence = 0; sequence < 3; ++sequence) {
      if (length % 2 == 0) executor.truncate(sequence, 0);
      if (executor.length(sequence) + length > executor.options().context) executor.truncate(sequence, 0);
      const auto tokens = test::random_tokens(executor.model().config().V, length, length + sequence);
      for (auto& row : test::feed(executor, sequence, tokens, chunk, length - 1)) logits.push_back(std::move(row));
    }
  }
  return logits;
}

TEST_P(CudaPromptTest, ReplaysGiveTheSameBits) {
  for (const uint32_t chunk : {128u, 50u}) {
    const test::Logits graphs = run_prompts(*make("launch.prompt=graph"), chunk);
    EXPECT_EQ(test::relative_error(run_prompts(*make("launch.prompt=single"), chunk), graphs), 0.0) << chunk;
    EXPECT_EQ(test::relative_error(run_prompts(*make("launch.prompt=graph,overlap=off"), chunk), graphs), 0.0) << chunk;
    const auto reference = make_reference_executor(model_, options());
    EXPECT_LT(test::relative_error(graphs, run_prompts(*reference, chunk)), test::prompt_tolerance(GetParam()))
        << chunk;
  }
}

// A replay leaves the best candidates behind, and decode goes on from its keys and values.
TEST_P(CudaPromptTest, ReplaysAreFollowedByTokens) {
  const auto graphs = make("launch.prompt=graph"), single = make("launch.prompt=single");
  for (int run = 0; run < 4; ++run) {
    std::vector<int32_t> texts[2];
    for (Executor* executor : {graphs.get(), single.get()}) {
      executor->truncate(1, 0);
      const auto tokens = test::random_tokens(model_->config().V, 40 + 2 * static_cast<size_t>(run), 77);
      test::feed(*executor, 1, tokens, 128, tokens.size() - 1);
      std::vector<Candidate> best;
      for (int t = 0; t < 6; ++t) {
        executor->best(0, 3, best);
        ASSERT_EQ(best.size(), 3u);
        for (const Candidate& candidate : best) {
          ASSERT_EQ(candidate.logit, executor->logits(0)[static_cast<size_t>(candidate.token)]);
        }
        texts[executor == single.get()].push_back(best[0].token);
        executor->forward(std::vector<Row>{{best[0].token, executor->length(1), 1, true}});
      }
    }
    EXPECT_EQ(texts[0], texts[1]) << "run " << run;
  }
}

TEST_P(CudaPromptTest, CachedPerLayerEmbeddingsAreTheSame) {
  const test::Logits device = run_prompts(*make("ple.table=device"), 128);
  for (const std::string launch : {"graph", "single"}) {
    const auto executor = make("ple.table=host,launch.prompt=" + launch);
    EXPECT_EQ(test::relative_error(run_prompts(*executor, 128), device), 0.0) << launch;
    // Passes whose rows all want logits need the embeddings of more layers than the prompts before them did.
    const auto tokens = test::random_tokens(model_->config().V, 100, 1);
    executor->truncate(0, 0);
    const auto other = make("ple.table=device");
    EXPECT_EQ(test::relative_error(test::feed(*executor, 0, tokens, 100), test::feed(*other, 0, tokens, 100)), 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, CudaPromptTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
