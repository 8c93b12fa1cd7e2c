#include "engine/scheduling/queue_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace carat::engine {
namespace {

using Queue = std::vector<QueuedRequest>;

TEST(QueueOrder, AmongEqualsTheFirst) { EXPECT_EQ(next_in_queue(Queue(3, {.tokens_to_run = 100})), 0u); }

TEST(QueueOrder, ShortPromptsOvertakeLongOnesForAWhile) {
  EXPECT_EQ(next_in_queue(Queue{{.tokens_to_run = 100000, .waited = 1.0}, {.tokens_to_run = 200}}), 1u);
  // 100,000 tokens that have waited for 25 seconds count as 7,407.
  EXPECT_EQ(next_in_queue(Queue{{.tokens_to_run = 100000, .waited = 25.0}, {.tokens_to_run = 8000}}), 0u);
}

TEST(QueueOrder, PrioritiesComeFirstAndWaitingRaisesThem) {
  EXPECT_EQ(next_in_queue(Queue{{.priority = 0, .tokens_to_run = 1}, {.priority = -1, .tokens_to_run = 9}}), 1u);
  EXPECT_EQ(next_in_queue(Queue{{.priority = 2, .tokens_to_run = 9, .waited = 91.0}, {.tokens_to_run = 1}}), 0u);
}

TEST(QueueOrder, WhoHadToGiveBackAPlaceIsNext) {
  EXPECT_EQ(next_in_queue(Queue{{.priority = -5, .tokens_to_run = 1}, {.has_started = true, .tokens_to_run = 900}}),
            1u);
}

TEST(QueueOrder, ClientsThatWereGivenLessComeFirst) {
  EXPECT_EQ(
      next_in_queue(Queue{{.client_work = 50000, .tokens_to_run = 10}, {.client_work = 3000, .tokens_to_run = 4000}}),
      1u);
  EXPECT_EQ(
      next_in_queue(Queue{{.client_work = 900, .tokens_to_run = 10}, {.client_work = 100, .tokens_to_run = 4000}}), 0u)
      << "a few tokens do not decide";
}

TEST(FairShare, NobodySavesUp) {
  FairShare share;
  share.begin("a");
  share.add("a", 5000);
  share.begin("b");
  EXPECT_EQ(share.work("b"), 5000);
  share.add("b", 100);
  share.end("b");
  EXPECT_EQ(share.work("b"), 0) << "gone";
  share.add("b", 100);
  EXPECT_EQ(share.work("b"), 0);
  share.begin("a");
  share.end("a");
  EXPECT_EQ(share.work("a"), 5000) << "it has another request";
}

}  // namespace
}  // namespace carat::engine
