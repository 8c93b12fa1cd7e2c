#include "server/metrics/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace carat::server {
namespace {

template <typename Index>
constexpr size_t at(Index index) {
  return static_cast<size_t>(index);
}

TEST(ServerMetrics, CountsRequestsByRouteAndStatus) {
  ServerMetrics metrics;
  metrics.count_request("openai", "/v1/models", 200);
  metrics.count_request("openai", "/v1/chat/completions", 200);
  metrics.count_request("openai", "/v1/chat/completions", 429);
  metrics.count_request("openai", "/v1/chat/completions", 200);
  metrics.count_request("anthropic", "/v1/messages", 200);
  const auto requests = metrics.figures().requests;
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].api, "anthropic");
  EXPECT_EQ(requests[1].route, "/v1/chat/completions");
  EXPECT_EQ(requests[1].status, 200u);
  EXPECT_EQ(requests[1].count, 2u);
  EXPECT_EQ(requests[2].status, 429u);
  EXPECT_EQ(requests[3].route, "/v1/models");
}

TEST(ServerMetrics, CountsWhatARequestTook) {
  ServerMetrics metrics;
  metrics.count_generation(
      {.answers = {{.generated_tokens = 11, .thought_tokens = 4, .decode_seconds = 0.1},
                   {.outcome = AnswerOutcome::kLength, .generated_tokens = 1, .decode_seconds = 0.0}},
       .choices = 2,
       .max_tokens = 100,
       .prompt_tokens = 1000,
       .known_tokens = 900,
       .cached_tokens = 600,
       .lost_reason = LostReason::kWindow,
       .lost_tokens = 300,
       .queue_seconds = 0.002,
       .prefill_seconds = 0.05,
       .total_seconds = 0.2});
  metrics.count_generation({.answers = {{.outcome = AnswerOutcome::kCancelled}},
                            .cancelled_in = RequestPhase::kPrefill,
                            .prompt_tokens = 10});
  const ServerFigures figures = metrics.figures();
  EXPECT_EQ(figures.answers[at(AnswerOutcome::kStop)], 1u);
  EXPECT_EQ(figures.answers[at(AnswerOutcome::kLength)], 1u);
  EXPECT_EQ(figures.answers[at(AnswerOutcome::kCancelled)], 1u);
  EXPECT_EQ(figures.cancelled[at(RequestPhase::kPrefill)], 1u);
  EXPECT_EQ(figures.cancelled[at(RequestPhase::kQueued)], 0u);
  EXPECT_EQ(figures.lost_tokens[at(LostReason::kWindow)], 300u);
  EXPECT_EQ(figures.prompt_tokens, 1010u);
  EXPECT_EQ(figures.known_tokens, 900u);
  EXPECT_EQ(figures.cached_tokens, 600u);
  EXPECT_EQ(figures.generated_tokens, 12u);
  EXPECT_EQ(figures.thought_tokens, 4u);
  EXPECT_EQ(figures.longest_context, 1011u);
  EXPECT_EQ(figures.total.total(), 2u);
  EXPECT_DOUBLE_EQ(figures.total.sum, 0.2);
  EXPECT_EQ(figures.request_computed_tokens.sum, 410.0);
  EXPECT_EQ(figures.request_max_tokens.total(), 1u) << "only where the client set one";
  EXPECT_EQ(figures.answer_tokens.total(), 3u);
  EXPECT_EQ(figures.longest_answer_tokens.sum, 11.0);
  EXPECT_EQ(figures.seconds_per_token.total(), 1u) << "one token has no time between tokens";
  EXPECT_DOUBLE_EQ(figures.seconds_per_token.sum, 0.01);
  EXPECT_DOUBLE_EQ(figures.inference.sum, 0.05 + 0.15);
}

TEST(ServerMetrics, KnowsItsStateAndWhenItWasReady) {
  ServerMetrics metrics;
  EXPECT_EQ(metrics.figures().state, ServerState::kLoading);
  EXPECT_FALSE(metrics.figures().startup_seconds.has_value());
  metrics.set_state(ServerState::kReady);
  const auto ready = metrics.figures().startup_seconds;
  ASSERT_TRUE(ready.has_value());
  EXPECT_GE(*ready, 0.0);
  metrics.set_state(ServerState::kDraining);
  metrics.set_state(ServerState::kReady);
  EXPECT_EQ(metrics.figures().startup_seconds, ready) << "the first time counts";
}

TEST(ServerMetrics, StagesGoUpAndDown) {
  ServerMetrics metrics;
  metrics.enter(ServiceStage::kPreparing);
  metrics.enter(ServiceStage::kPreparing);
  metrics.enter(ServiceStage::kPaused);
  metrics.leave(ServiceStage::kPreparing);
  EXPECT_THAT(metrics.figures().staged, testing::ElementsAre(1, 1));
}

// What the thread sanitizer looks at: all feeders and a reader at the same time.
TEST(ServerMetrics, CanBeFedAndReadFromAnyThread) {
  constexpr int kThreads = 4, kEach = 500;
  ServerMetrics metrics;
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        metrics.enter(ServiceStage::kPreparing);
        metrics.leave(ServiceStage::kPreparing);
        metrics.observe_first_token(0.01);
        for (int gap = 0; gap < 10; ++gap) metrics.observe_gap(0.001);
        metrics.count_bad_tool_call();
        metrics.count_generation({.answers = {{.generated_tokens = 10}}, .prompt_tokens = 5});
        metrics.count_request("openai", "/v1/completions", 200);
        metrics.set_state(ServerState::kReady);
      }
      --running;
    });
  }
  uint64_t last = 0;
  while (running > 0) {
    const ServerFigures figures = metrics.figures();
    ASSERT_GE(figures.prompt_tokens, last);
    ASSERT_EQ(figures.generated_tokens, 2 * figures.prompt_tokens) << "what belongs to a request appears at once";
    last = figures.prompt_tokens;
  }
  for (std::thread& thread : threads) thread.join();
  const ServerFigures figures = metrics.figures();
  EXPECT_EQ(figures.requests.at(0).count, uint64_t{kThreads * kEach});
  EXPECT_EQ(figures.gap.total(), uint64_t{10 * kThreads * kEach});
  EXPECT_EQ(figures.first_token.total(), uint64_t{kThreads * kEach});
  EXPECT_EQ(figures.bad_tool_calls, uint64_t{kThreads * kEach});
  EXPECT_EQ(figures.staged[at(ServiceStage::kPreparing)], 0u);
}

}  // namespace
}  // namespace carat::server
