// The engine on executors whose passes run in the background: the next pass is started before tokens are handed out.
#include <atomic>
#include <stdexcept>

#include "base/error.h"
#include "engine/background_executor.h"
#include "engine/engine.h"
#include "exec/reference/reference_executor.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace carat::engine {
namespace {

using test::BackgroundExecutor;
using text::TokenId;

class BackgroundEngine : public testing::Test {
 protected:
  BackgroundEngine() : model_(test::tiny_model(test::TinyKind::kE2B)) {}

  exec::ExecutorOptions options(uint32_t sequences) const {
    exec::ExecutorOptions options;
    options.context = 96;
    options.sequences = sequences;
    options.chunk = 7;
    options.outputs = 8;
    options.threads = 1;
    options.cancelled = &cancelled_;
    return options;
  }
  std::shared_ptr<const text::Vocab> vocab() const { return text::Vocab::from_metadata(model_->file().metadata()); }

  Engine make_engine(uint32_t sequences = 1) {
    auto executor = std::make_unique<BackgroundExecutor>(exec::make_reference_executor(model_, options(sequences)));
    executor_ = executor.get();
    return Engine(std::move(executor), vocab());
  }

  Request request(uint64_t seed, uint32_t max_tokens = 10) const {
    test::Random random(seed);
    Request request;
    for (int i = 0; i < 9; ++i) request.prompt.push_back(static_cast<TokenId>(random.below(model_->config().V)));
    request.max_tokens = max_tokens;
    request.ignore_stops = true;
    request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.presence_penalty = 0.3f;
    request.sampling.seed = seed;
    return request;
  }

  // As an executor that does everything at once has it.
  std::vector<TokenId> alone(const Request& request) const {
    Engine engine(exec::make_reference_executor(model_, options(1)), vocab());
    const auto sequence = engine.submit(request);
    engine.run();
    return tokens_of(*sequence);
  }
  static std::vector<TokenId> tokens_of(const Sequence& sequence) {
    return {sequence.generated().begin(), sequence.generated().end()};
  }

  std::shared_ptr<const model::Model> model_;
  mutable std::atomic<bool> cancelled_ = false;
  BackgroundExecutor* executor_ = nullptr;
};

TEST_F(BackgroundEngine, TheTextsAreTheSame) {
  Engine engine = make_engine(3);
  std::vector<std::shared_ptr<const Sequence>> sequences;
  for (uint64_t seed = 1; seed <= 5; ++seed) sequences.push_back(engine.submit(request(seed, 5 + 3 * seed % 8)));
  engine.run();
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(tokens_of(*sequences[seed - 1]), alone(request(seed, 5 + 3 * seed % 8))) << "seed " << seed;
    EXPECT_EQ(sequences[seed - 1]->ending(), Ending::kLength);
  }
  EXPECT_FALSE(executor_->is_running());
}

TEST_F(BackgroundEngine, TheNextPassRunsWhileATokenIsHandedOut) {
  Engine engine = make_engine();
  std::vector<bool> running;
  engine.submit(request(2, 6), [&](TokenId) { running.push_back(executor_->is_running()); });
  engine.run();
  EXPECT_EQ(running, (std::vector<bool>{true, true, true, true, true, false}));  // nothing follows the last one
  EXPECT_EQ(executor_->passes(), 2u + 5u);  // a prompt of two chunks; no pass for a token that nobody wants
}

TEST_F(BackgroundEngine, WithDraftsATokenIsHandedOutFirst) {
  auto executor = std::make_unique<BackgroundExecutor>(exec::make_reference_executor(model_, options(1)));
  BackgroundExecutor* seen = executor.get();
  Engine engine(std::move(executor), vocab(), {.drafts = {.mode = DraftMode::kOn}});
  const auto sequence = engine.submit(request(2), [&](TokenId) { EXPECT_FALSE(seen->is_running()); });
  engine.run();
  EXPECT_EQ(tokens_of(*sequence), alone(request(2)));
}

TEST_F(BackgroundEngine, WhatACallbackCancelsIsTakenBack) {
  Engine engine = make_engine(2);
  std::shared_ptr<const Sequence> stopped;
  int handed_out = 0;
  stopped = engine.submit(request(3), [&](TokenId) {
    if (++handed_out == 4) engine.cancel(*stopped);
  });
  const auto other = engine.submit(request(4, 20));
  engine.run();
  EXPECT_EQ(stopped->ending(), Ending::kCancelled);
  EXPECT_EQ(stopped->generated().size(), 4u);
  EXPECT_EQ(tokens_of(*other), alone(request(4, 20)));
  EXPECT_EQ(executor_->length(0), 9u + 3u);  // the fourth token was running already

  // The same slot goes on from what it holds.
  Request next = request(5);
  next.prompt.assign(stopped->tokens().begin(), stopped->tokens().end());
  const auto sequence = engine.submit(next);
  engine.run();
  EXPECT_EQ(sequence->prefix_reused(), 12u);
  EXPECT_EQ(tokens_of(*sequence), alone(next));
}

TEST_F(BackgroundEngine, NothingRunsOnceTheLastSequenceIsCancelled) {
  Engine engine = make_engine();
  std::shared_ptr<const Sequence> sequence;
  sequence = engine.submit(request(6), [&](TokenId) {
    EXPECT_TRUE(executor_->is_running());
    engine.cancel(*sequence);
    EXPECT_FALSE(executor_->is_running());
  });
  engine.run();
  EXPECT_EQ(sequence->generated().size(), 1u);
  const auto next = engine.submit(request(7));
  EXPECT_TRUE(engine.step());
  engine.cancel(*next);  // between two steps
  EXPECT_FALSE(executor_->is_running());
  EXPECT_FALSE(engine.step());
  const auto last = engine.submit(request(8));
  engine.run();
  EXPECT_EQ(tokens_of(*last), alone(request(8)));
}

TEST_F(BackgroundEngine, WhatACallbackSubmitsRuns) {
  Engine engine = make_engine(2);
  std::shared_ptr<const Sequence> second;
  const auto first = engine.submit(request(9, 6), [&](TokenId) {
    if (!second) second = engine.submit(request(10));
  });
  engine.run();
  EXPECT_EQ(tokens_of(*first), alone(request(9, 6)));
  ASSERT_TRUE(second);
  EXPECT_EQ(tokens_of(*second), alone(request(10)));
}

TEST_F(BackgroundEngine, TokensAreHandedOutBeforeAFailureOfTheNextPass) {
  for (const bool at_start : {true, false}) {
    Engine engine = make_engine();
    if (at_start) {
      executor_->fail_start(4, ErrorCode::kOutOfMemory);
    } else {
      executor_->fail_finish(4, ErrorCode::kOutOfMemory);
    }
    int handed_out = 0;
    const auto failing = engine.submit(request(11), [&](TokenId) { ++handed_out; });
    const auto waiting = engine.submit(request(12));
    engine.run();
    EXPECT_EQ(handed_out, 3);  // two passes of prompt, and the second gives a token
    EXPECT_EQ(failing->ending(), Ending::kFailed);
    ASSERT_TRUE(failing->failure());
    EXPECT_EQ(failing->failure()->code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(tokens_of(*waiting), alone(request(12)));
  }
}

TEST_F(BackgroundEngine, ADeviceThatFailsUnderACancelledSequenceIsNoticed) {
  Engine engine = make_engine();
  executor_->fail_finish(3, ErrorCode::kDevice);
  std::shared_ptr<const Sequence> sequence;
  int handed_out = 0;
  sequence = engine.submit(request(11), [&](TokenId) {
    if (++handed_out == 2)
      engine.cancel(*sequence);  // its next pass, which nobody needs any more, is the one that fails
  });
  const auto waiting = engine.submit(request(12));
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kCancelled);
  EXPECT_EQ(waiting->ending(), Ending::kFailed);
  ASSERT_TRUE(engine.lost());
  EXPECT_EQ(engine.lost()->text, "made up: finish");
}

TEST_F(BackgroundEngine, AnObserverThatThrowsEndsItsOwnRequest) {
  Engine engine = make_engine(2);
  int handed_out = 0;
  const auto throwing = engine.submit(request(3), [&](TokenId) {
    if (++handed_out == 4) throw std::runtime_error("the pipe is closed");
  });
  const auto other = engine.submit(request(4, 20));
  engine.run();
  EXPECT_EQ(throwing->ending(), Ending::kFailed);
  EXPECT_EQ(throwing->failure()->text, "the pipe is closed");
  EXPECT_EQ(throwing->generated().size(), 4u);
  EXPECT_EQ(tokens_of(*other), alone(request(4, 20)));
  EXPECT_EQ(executor_->length(0), 9u + 3u);  // the pass of the fourth token was running already, and was taken back
}

TEST_F(BackgroundEngine, AnInterruptionEndsThePassThatIsRunning) {
  Engine engine = make_engine();
  int handed_out = 0;
  const auto sequence = engine.submit(request(13), [&](TokenId) { cancelled_ = ++handed_out == 3; });
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kInterrupted);
  EXPECT_EQ(handed_out, 3);
  EXPECT_FALSE(executor_->is_running());
  cancelled_ = false;
  const auto next = engine.submit(request(13));
  engine.run();
  EXPECT_EQ(tokens_of(*next), alone(request(13)));
}

}  // namespace
}  // namespace carat::engine
