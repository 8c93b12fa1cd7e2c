// With times that are exactly known.
#include "serve/stream_taker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/serve/fake_server.h"

namespace carat::serve_bench {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

class StreamTakerTest : public testing::Test {
 protected:
  static Clock::time_point at(int milliseconds) {
    return Clock::time_point(std::chrono::seconds(100)) + std::chrono::milliseconds(milliseconds);
  }
  void take(int milliseconds, std::string_view bytes) { taker_.take(bytes, 200, at(milliseconds)); }
  void SetUp() override { taker_.begin(at(0)); }

  RequestResult result_;
  StreamTaker taker_{result_, true};
};

TEST_F(StreamTakerTest, MeasuresTokensAndNothingElse) {
  take(5, ": keep-alive\n\n");
  take(10, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n");
  take(15, "data: {\"choices\":[],\"prompt_progress\":{\"total\":10,\"processed\":5}}\n\n");
  take(40, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"},\"finish_reason\":null}]}\n\n");
  take(50, test::chat_chunk("a") + test::chat_chunk("b"));
  take(70, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]},\"finish_reason\":null}]}\n\n");
  take(72, test::last_chunk());
  take(90, test::usage_chunk(30, 20, 9) + test::kDone);
  taker_.end(200);
  EXPECT_TRUE(result_.is_complete);
  EXPECT_DOUBLE_EQ(result_.first_token, 0.040);
  EXPECT_THAT(result_.gaps, ElementsAre(DoubleNear(0.010, 1e-9), 0.0, DoubleNear(0.020, 1e-9)));
  EXPECT_DOUBLE_EQ(result_.latency, 0.072) << "the answer ended there; usage is no part of it";
  EXPECT_EQ(result_.answer, "ab");
  EXPECT_EQ(result_.prompt_tokens, 30u);
  EXPECT_EQ(result_.cached_tokens, 20u);
  EXPECT_EQ(result_.output_tokens, 9u);
}

TEST_F(StreamTakerTest, TakesEventsInAnyPieces) {
  const std::string all = test::text_chunk("one") + ": ping\r\n\r\n" + test::text_chunk("two") + test::last_chunk() +
                          test::usage_chunk(1, 0, 7) + test::kDone;
  for (size_t size = 1; size < all.size(); ++size) {
    RequestResult result;
    StreamTaker taker(result, true);
    taker.begin(at(0));
    for (size_t i = 0; i < all.size(); i += size) taker.take(all.substr(i, size), 200, at(1));
    taker.end(200);
    ASSERT_TRUE(result.is_complete) << size;
    ASSERT_EQ(result.answer, "onetwo") << size;
    ASSERT_EQ(result.output_tokens, 7u) << size;
    ASSERT_EQ(result.gaps.size(), 1u) << size;
  }
}

TEST_F(StreamTakerTest, AnAnswerWithoutTextThatIsShownHasItsTimeAtItsEnd) {
  take(30, test::last_chunk() + test::usage_chunk(5, 0, 1));
  taker_.end(200);
  EXPECT_TRUE(result_.is_complete);
  EXPECT_DOUBLE_EQ(result_.first_token, 0.030);
}

}  // namespace
}  // namespace carat::serve_bench
