// The thread that owns an engine: every request gets exactly one end, whatever is asked of it from how many threads.
#include "engine/runner/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <latch>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "engine/background_executor.h"
#include "engine/faulty_executor.h"
#include "engine/runner/update_queue.h"
#include "engine/scripted_executor.h"
#include "engine/tiny_engine.h"

namespace carat::engine {
namespace {

using test::BackgroundExecutor;
using test::FaultyExecutor;
using test::make_engine;
using test::make_request;
using test::run_alone;
using test::small_options;
using test::TinyKind;
using test::Tokens;
using text::TokenId;

ErrorCode code_of(const std::function<void()>& action, std::string* text = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kIo;
}

// All that came of one request.
struct Outcome {
  Tokens tokens;
  RequestEnd end;
};

Outcome wait_for(UpdateQueue& queue) {
  Outcome outcome;
  for (;;) {
    const UpdateQueue::Update update = queue.wait();
    outcome.tokens.insert(outcome.tokens.end(), update.tokens.begin(), update.tokens.end());
    if (!update.end) continue;
    outcome.end = *update.end;
    return outcome;
  }
}

TEST(Runner, GivesEachRequestWhatItGetsAlone) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  for (const bool in_background : {false, true}) {
    auto executor = exec::make_reference_executor(model, small_options(3));
    if (in_background) executor = std::make_unique<BackgroundExecutor>(std::move(executor));
    Runner runner(Engine(std::move(executor), test::vocab_of(*model)));
    std::vector<Request> requests;
    std::vector<std::shared_ptr<UpdateQueue>> queues;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      requests.push_back(make_request(*model, 3 + 5 * seed % 17, 8, seed));
      queues.push_back(std::make_shared<UpdateQueue>());
      runner.submit(requests.back(), queues.back());
    }
    for (size_t i = 0; i < queues.size(); ++i) {
      const Outcome outcome = wait_for(*queues[i]);
      EXPECT_EQ(outcome.tokens, run_alone(model, requests[i])) << "request " << i;
      EXPECT_EQ(outcome.end.ending, Ending::kLength);
      EXPECT_EQ(outcome.end.figures.generated, 8u);
      EXPECT_EQ(outcome.end.figures.prompt_tokens, requests[i].prompt.size());
    }
  }
}

// Keeps every update as it came.
class UpdateLog : public RequestSink {
 public:
  void update(const RequestUpdate& update) override {
    const std::lock_guard lock(mutex_);
    text_ += fmt::format("[{}", update.prompt_processed);
    if (!update.tokens.empty()) text_ += fmt::format(" +{}", update.tokens.size());
    if (update.end != nullptr) text_ += fmt::format(" {}", ending_name(update.end->ending));
    text_ += "]";
    ended_ |= update.end != nullptr;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  bool ended_ = false;
};

TEST(Runner, HandsOutOneUpdateForEachPass) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto log = std::make_shared<UpdateLog>();
  std::atomic<int> wake_ups = 0;
  Runner runner(make_engine(model), {.after_updates = [&] { ++wake_ups; }});
  runner.submit(make_request(*model, 20, 4, 2), log);
  runner.drain();
  runner.wait();
  EXPECT_EQ(log->text(), "[0][7][14][20 +1][20 +1][20 +1][20 +1 token limit reached]");
  EXPECT_EQ(wake_ups, 7);
}

TEST(Runner, RefusesInTheCallersThreadWhatCannotBeRun) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model));
  const auto queue = std::make_shared<UpdateQueue>();
  EXPECT_EQ(code_of([&] { runner.submit({}, queue); }), ErrorCode::kBadArgument);
  Request request = make_request(*model, 3, 2, 1);
  request.sampling.top_p = 2.0f;
  EXPECT_EQ(code_of([&] { runner.submit(request, queue); }), ErrorCode::kBadArgument);
  EXPECT_EQ(runner.snapshot().totals.submitted, 0u);
}

TEST(Runner, CancelEndsOneRequestWaitingOrRunning) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Runner runner(make_engine(model));
  const auto running = std::make_shared<UpdateQueue>(), waiting = std::make_shared<UpdateQueue>(),
             kept = std::make_shared<UpdateQueue>();
  const Request request = make_request(*model, 9, 12, 3);
  const RequestId first = runner.submit(make_request(*model, 9, 80, 1), running);
  const RequestId second = runner.submit(request, waiting);
  runner.submit(request, kept);
  runner.cancel(second);
  EXPECT_EQ(wait_for(*waiting).end.ending, Ending::kCancelled);
  runner.cancel(first);
  const Outcome outcome = wait_for(*running);
  EXPECT_EQ(outcome.end.ending, Ending::kCancelled);
  EXPECT_EQ(outcome.end.figures.generated, outcome.tokens.size());
  EXPECT_EQ(wait_for(*kept).tokens, run_alone(model, request));
  runner.cancel(first);  // nothing happens to what has ended
  runner.cancel(12345);
}

TEST(Runner, DrainFinishesWhatWasAcceptedAndRefusesTheRest) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model));
  const auto running = std::make_shared<UpdateQueue>(), waiting = std::make_shared<UpdateQueue>();
  const Request request = make_request(*model, 9, 12, 1);
  runner.submit(request, running);
  runner.submit(request, waiting);
  runner.drain();
  EXPECT_EQ(code_of([&] { runner.submit(request, running); }), ErrorCode::kInterrupted);
  runner.wait();
  for (const auto& queue : {running, waiting}) EXPECT_EQ(wait_for(*queue).tokens, run_alone(model, request));
  EXPECT_EQ(runner.snapshot().state, RunnerState::kDraining);
  EXPECT_EQ(runner.snapshot().totals.ended[static_cast<size_t>(Ending::kLength)], 2u);
}

TEST(Runner, StopEndsAllAtOnce) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model));
  const auto running = std::make_shared<UpdateQueue>(), waiting = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 9, 80, 1), running);
  runner.submit(make_request(*model, 9, 80, 1), waiting);
  while (running->wait().tokens.empty()) {
  }
  runner.stop();
  EXPECT_EQ(wait_for(*running).end.ending, Ending::kInterrupted);
  EXPECT_EQ(wait_for(*waiting).end.ending, Ending::kInterrupted);
  EXPECT_EQ(code_of([&] { runner.submit(make_request(*model, 3, 2, 1), running); }), ErrorCode::kInterrupted);
  runner.wait();
  EXPECT_EQ(runner.snapshot().state, RunnerState::kStopped);
}

// A pass that only ends when it is told to.
class EndlessExecutor : public test::ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;
  void forward(std::span<const exec::Row>) override {
    while (!options().cancelled->load()) std::this_thread::yield();
    fail(ErrorCode::kInterrupted, "the pass was interrupted");
  }
};

TEST(Runner, StopInterruptsThePassThatIsRunning) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  std::atomic<bool> cancelled = false;
  exec::ExecutorOptions options = small_options();
  options.cancelled = &cancelled;
  Runner runner(
      Engine(std::make_unique<EndlessExecutor>(exec::make_reference_executor(model, options)), test::vocab_of(*model)),
      {.cancelled = &cancelled});
  const auto queue = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 9, 80, 1), queue);
  runner.stop();
  EXPECT_EQ(wait_for(*queue).end.ending, Ending::kInterrupted);
}

class ThrowingSink : public UpdateQueue {
 public:
  explicit ThrowingSink(int updates) : left_(updates) {}
  void update(const RequestUpdate& update) override {
    UpdateQueue::update(update);
    if (left_-- == 0) throw std::runtime_error("the reader is gone");
  }

 private:
  int left_;
};

TEST(Runner, ASinkThatThrowsEndsItsOwnRequest) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model, 2));
  const Request request = make_request(*model, 9, 12, 1);
  const auto throwing = std::make_shared<ThrowingSink>(4);
  const auto other = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 5, 12, 2), throwing);
  runner.submit(request, other);
  const RequestEnd end = wait_for(*throwing).end;
  EXPECT_EQ(end.ending, Ending::kFailed);
  EXPECT_EQ(end.failure->text, "the reader is gone");
  EXPECT_EQ(wait_for(*other).tokens, run_alone(model, request));
}

TEST(Runner, ALostDeviceEndsAllAndEverybodyIsToldWhy) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(Engine(
      std::make_unique<FaultyExecutor>(exec::make_reference_executor(model, small_options()), 4, ErrorCode::kDevice),
      test::vocab_of(*model)));
  const auto running = std::make_shared<UpdateQueue>(), waiting = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 9, 12, 1), running);
  runner.submit(make_request(*model, 9, 12, 1), waiting);
  for (const auto& queue : {running, waiting}) {
    const RequestEnd end = wait_for(*queue).end;
    EXPECT_EQ(end.ending, Ending::kFailed);
    EXPECT_EQ(end.failure->code, ErrorCode::kDevice);
  }
  runner.wait();
  std::string text;
  EXPECT_EQ(code_of([&] { runner.submit(make_request(*model, 9, 12, 1), running); }, &text), ErrorCode::kDevice);
  EXPECT_THAT(text, testing::HasSubstr("made up: the pass failed"));
  EXPECT_EQ(runner.snapshot().state, RunnerState::kLost);
  ASSERT_TRUE(runner.snapshot().lost);
  EXPECT_EQ(runner.snapshot().lost->text, "made up: the pass failed");
}

TEST(Runner, AMistakeOnItsOwnThreadLeavesNobodyWaiting) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model), {.after_updates = [] { throw std::logic_error("made up: a bug"); }});
  const auto running = std::make_shared<UpdateQueue>(), waiting = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 20, 12, 1), running);
  try {
    runner.submit(make_request(*model, 9, 12, 1), waiting);
    EXPECT_EQ(wait_for(*waiting).end.ending, Ending::kFailed);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);  // it was over before
  }
  EXPECT_EQ(wait_for(*running).end.failure->text, "made up: a bug");
  runner.wait();
  EXPECT_EQ(runner.snapshot().state, RunnerState::kLost);
}

TEST(Runner, APausedRequestGoesOnWhereItWas) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model, 2));
  const Request request = make_request(*model, 9, 30, 1);
  const auto queue = std::make_shared<UpdateQueue>();
  const RequestId id = runner.submit(request, queue);
  Tokens tokens;
  while (tokens.size() < 3) {
    const auto update = queue->wait();
    tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
  }
  runner.pause(id);
  const auto other = std::make_shared<UpdateQueue>();
  runner.submit(make_request(*model, 5, 40, 2), other);
  wait_for(*other);
  runner.resume(id);
  const Outcome rest = wait_for(*queue);
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(tokens, run_alone(model, request));
}

TEST(Runner, SnapshotsCountWhatWasDone) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Runner runner(make_engine(model, 2));
  const auto queue = std::make_shared<UpdateQueue>();
  const Request request = make_request(*model, 20, 5, 2);
  runner.submit(request, queue);
  const Outcome first = wait_for(*queue);
  Request longer = request;
  longer.prompt.insert(longer.prompt.end(), first.tokens.begin(), first.tokens.end());
  runner.submit(longer, queue);
  wait_for(*queue);
  runner.drain();
  runner.wait();
  const RunnerSnapshot snapshot = runner.snapshot();
  EXPECT_EQ(snapshot.running, 0u);
  EXPECT_EQ(snapshot.waiting, 0u);
  EXPECT_EQ(snapshot.cache_capacity, 2u * 128u);  // two pages of 64 positions for each
  EXPECT_EQ(snapshot.cached_tokens, 64u);         // what was kept of the first, and the second wrote in a copy of it
  EXPECT_EQ(snapshot.generated_tokens_per_second, 0.0);
  EXPECT_EQ(snapshot.totals.submitted, 2u);
  EXPECT_EQ(snapshot.totals.generated_tokens, 10u);
  EXPECT_EQ(snapshot.totals.prompt_tokens_run, 20u + 1u);
  EXPECT_EQ(snapshot.totals.prompt_tokens_reused, 24u);
  EXPECT_EQ(snapshot.totals.mask_seconds, 0.0);  // nobody was guided
  const PassCounts& prompt = snapshot.totals.passes[static_cast<size_t>(PassMix::kPrompt)];
  const PassCounts& decode = snapshot.totals.passes[static_cast<size_t>(PassMix::kDecode)];
  EXPECT_EQ(prompt.passes, 3u + 1u);
  EXPECT_EQ(prompt.rows, 20u + 1u);
  EXPECT_EQ(decode.passes, 4u + 4u);
  EXPECT_EQ(decode.rows, 4u + 4u);
  EXPECT_EQ(decode.by_rows[0], decode.passes);
  EXPECT_EQ(std::accumulate(prompt.by_seconds.begin(), prompt.by_seconds.end(), uint64_t{0}), prompt.passes);
}

TEST(RunnerTotals, AddUpWhatPassesTook) {
  RunnerTotals totals;
  totals.add_pass({.number = 1, .decode_rows = 2, .tokens = 2, .seconds = 0.5, .mask_seconds = 0.25});
  totals.add_pass({.number = 2, .decode_rows = 1, .tokens = 1, .seconds = 0.25, .mask_seconds = 0.125});
  EXPECT_EQ(totals.mask_seconds, 0.375);
}

TEST(RecentRate, ForgetsWhatWasLongAgo) {
  RecentRate rate;
  for (int i = 0; i <= 2000; ++i) rate.add(0.01 * i, 5.0);  // 500 a second for 20 seconds
  EXPECT_NEAR(rate.at(20.0), 500.0, 5.0);
  EXPECT_NEAR(rate.at(22.0), 500.0 / std::exp(1.0), 5.0);
}

// Counts the ends of one request, and whether anything came after.
class EndCounter : public RequestSink {
 public:
  void update(const RequestUpdate& update) override {
    if (ends_.load() != 0) ++late_;
    if (update.end == nullptr) return;
    ending_ = update.end->ending;
    ++ends_;
  }
  int ends() const { return ends_; }
  int late() const { return late_; }
  Ending ending() const { return ending_; }

 private:
  std::atomic<int> ends_ = 0, late_ = 0;
  std::atomic<Ending> ending_ = Ending::kNone;
};

class RunnerStorm : public testing::TestWithParam<bool> {};

uint32_t below(test::Random& random, uint32_t n) { return static_cast<uint32_t>(random.below(n)); }

// 8 threads submit and cancel; at random moments the runner is drained or stopped, and another one made.
TEST_P(RunnerStorm, EveryAcceptedRequestGetsExactlyOneEnd) {
  constexpr uint32_t kThreads = 8, kRequests = 10000;
  const auto model = test::tiny_model(TinyKind::kE2B);
  test::Random random(7);
  uint32_t submitted = 0, rounds = 0;
  std::array<uint64_t, kEndings> endings{};
  while (submitted < kRequests) {
    double seconds = 0.0;
    std::unique_ptr<exec::Executor> executor = std::make_unique<test::ScriptedExecutor>(
        model, small_options(4), Tokens(97, 100), [](uint32_t) { return 0.001; }, &seconds);
    if (GetParam()) executor = std::make_unique<BackgroundExecutor>(std::move(executor));
    Runner runner(Engine(std::move(executor), test::vocab_of(*model)));
    const uint32_t quota = 20 + below(random, std::min(kRequests - submitted, 500u));
    std::atomic<uint32_t> asked = 0;
    std::array<std::vector<std::shared_ptr<EndCounter>>, kThreads> accepted;
    std::latch begin(kThreads + 1);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, seed = random.below(1u << 30)] {
        test::Random own(seed);
        std::vector<RequestId> ids;
        begin.arrive_and_wait();
        while (asked.fetch_add(1) < quota) {
          const auto counter = std::make_shared<EndCounter>();
          try {
            ids.push_back(
                runner.submit(make_request(*model, 1 + below(own, 12), below(own, 4), below(own, 100)), counter));
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
            break;
          }
          accepted[t].push_back(counter);
          if (own.below(3) == 0) runner.cancel(ids[own.below(static_cast<uint32_t>(ids.size()))]);
          if (own.below(50) == 0) runner.snapshot();
        }
      });
    }
    begin.arrive_and_wait();
    const bool is_drained = random.below(2) == 0;
    const uint32_t moment = below(random, quota + quota / 4);  // sometimes after the last request
    while (asked < std::min(moment, quota)) std::this_thread::yield();
    is_drained ? runner.drain() : runner.stop();
    for (std::thread& thread : threads) thread.join();
    runner.wait();
    uint64_t in_round = 0;
    for (const auto& counters : accepted) {
      for (const auto& counter : counters) {
        ASSERT_EQ(counter->ends(), 1);
        ASSERT_EQ(counter->late(), 0);
        ++endings[static_cast<size_t>(counter->ending())];
        ++in_round;
        ASSERT_FALSE(is_drained && counter->ending() == Ending::kInterrupted);
      }
    }
    EXPECT_EQ(runner.snapshot().totals.submitted, in_round);
    submitted += static_cast<uint32_t>(in_round);
    ++rounds;
  }
  EXPECT_GT(rounds, 10u);
  for (const Ending ending : {Ending::kLength, Ending::kCancelled, Ending::kInterrupted}) {
    EXPECT_GT(endings[static_cast<size_t>(ending)], 100u) << ending_name(ending);
  }
  EXPECT_EQ(endings[static_cast<size_t>(Ending::kFailed)], 0u);
}

INSTANTIATE_TEST_SUITE_P(Passes, RunnerStorm, testing::Bool(),
                         [](const auto& passes) { return passes.param ? "InBackground" : "AtOnce"; });

}  // namespace
}  // namespace carat::engine
