// What the engine promises when something goes wrong, and when it is told to end: docs/architecture.md, "The engine's
// contract".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/faulty_executor.h"
#include "engine/tiny_engine.h"

namespace carat::engine {
namespace {

using test::FaultyExecutor;
using test::generated;
using test::make_engine;
using test::make_request;
using test::run_alone;
using test::small_options;
using test::TinyKind;
using text::TokenId;

Engine make_faulty_engine(const std::shared_ptr<const model::Model>& model, uint32_t sequences, int failing_pass,
                          ErrorCode code, FaultyExecutor::Fault fault = FaultyExecutor::Fault::kError) {
  auto executor = exec::make_reference_executor(model, small_options(sequences));
  return Engine(std::make_unique<FaultyExecutor>(std::move(executor), failing_pass, code, fault),
                test::vocab_of(*model));
}

// --- an observer that throws -----------------------------------------------------------------------------------------

TEST(EngineContract, AnObserverThatThrowsEndsItsOwnRequest) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model, 3);
  const Request before = make_request(*model, 9, 12, 1), after = make_request(*model, 14, 12, 3);
  const auto first = engine.submit(before);
  size_t handed_out = 0;
  const auto throwing = engine.submit(make_request(*model, 5, 12, 2), [&](TokenId) {
    if (++handed_out == 4) throw std::runtime_error("the reader is gone");
  });
  const auto last = engine.submit(after);
  engine.run();
  EXPECT_EQ(throwing->ending(), Ending::kFailed);
  ASSERT_TRUE(throwing->failure());
  EXPECT_EQ(throwing->failure()->text, "the reader is gone");
  EXPECT_EQ(handed_out, 4u);
  EXPECT_EQ(generated(*first), run_alone(model, before));
  EXPECT_EQ(generated(*last), run_alone(model, after));
  EXPECT_FALSE(first->failure());

  // The engine lives on, with the same slot.
  const auto next = engine.submit(before);
  engine.run();
  EXPECT_EQ(generated(*next), generated(*first));
}

TEST(EngineContract, AnObserverThatThrowsAtTheLastTokenFails) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model);
  const auto sequence = engine.submit(make_request(*model, 5, 1, 2),
                                      [](TokenId) { fail(ErrorCode::kIo, "cannot write: the disk is full"); });
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kFailed);
  EXPECT_EQ(sequence->failure()->code, ErrorCode::kIo);
}

// Notes what it is told.
class Recorder : public SequenceObserver {
 public:
  void on_token(TokenId) override { events += 't'; }
  void on_prompt() override { events += 'p'; }
  void on_end() override { events += 'e'; }
  std::string events;
};

TEST(EngineContract, AnObserverIsToldEverythingInOrder) {
  const auto model = test::tiny_model(TinyKind::kE4B);
  Engine engine = make_engine(model);
  const auto whole = std::make_shared<Recorder>(), waiting = std::make_shared<Recorder>();
  engine.submit(engine.prepare(make_request(*model, 20, 4, 2)), whole);
  const auto cancelled = engine.prepare(make_request(*model, 20, 4, 2));
  engine.submit(cancelled, waiting);
  engine.cancel(*cancelled);
  EXPECT_EQ(waiting->events, "e");
  engine.run();
  EXPECT_EQ(whole->events, "pptttte");  // chunks of 7, 7 and 6
  EXPECT_EQ(waiting->events, "e");
}

// --- a guide that fails ----------------------------------------------------------------------------------------------

class BrokenGuide : public Guide {
 public:
  enum class Way { kThrowsWhenAsked, kThrowsWhenTold, kAllowsNothing };
  BrokenGuide(Way way, size_t vocabulary) : way_(way), words_((vocabulary + 63) / 64) {}
  std::optional<TokenId> forced() override { return std::nullopt; }
  std::span<const uint64_t> allowed() override {
    if (way_ == Way::kAllowsNothing && told_ == 3) return words_;
    if (way_ == Way::kThrowsWhenAsked && told_ == 3) throw std::runtime_error("the grammar has no such state");
    return {};
  }
  void accept(TokenId) override {
    if (++told_ == 4 && way_ == Way::kThrowsWhenTold) throw std::runtime_error("the grammar has no such state");
  }

 private:
  Way way_;
  std::vector<uint64_t> words_;
  int told_ = 0;
};

TEST(EngineContract, AGuideThatFailsEndsItsOwnRequest) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  for (const auto way :
       {BrokenGuide::Way::kThrowsWhenAsked, BrokenGuide::Way::kThrowsWhenTold, BrokenGuide::Way::kAllowsNothing}) {
    Engine engine = make_engine(model, 2);
    const Request sound = make_request(*model, 9, 12, 1);
    Request guided = make_request(*model, 6, 12, 2);
    guided.guide = std::make_shared<BrokenGuide>(way, model->config().V);
    const auto broken = engine.submit(guided);
    const auto other = engine.submit(sound);
    engine.run();
    EXPECT_EQ(broken->ending(), Ending::kFailed);
    EXPECT_EQ(broken->generated().size(), 3u);
    EXPECT_THAT(broken->failure()->text, way == BrokenGuide::Way::kAllowsNothing
                                             ? testing::HasSubstr("no token is left to choose from")
                                             : testing::HasSubstr("the grammar has no such state"));
    EXPECT_EQ(generated(*other), run_alone(model, sound));
  }
}

// --- a pass that fails -----------------------------------------------------------------------------------------------

TEST(EngineContract, AFailedPassEndsWhoRanAndWaitingRequestsStillRun) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_faulty_engine(model, 1, 4, ErrorCode::kOutOfMemory);
  const Request request = make_request(*model, 8, 10, 1);
  const auto failing = engine.submit(request);
  const auto waiting = engine.submit(request);
  engine.run();
  EXPECT_EQ(failing->ending(), Ending::kFailed);
  EXPECT_EQ(failing->failure()->code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(failing->failure()->text, "made up: the pass failed");
  EXPECT_FALSE(engine.lost());
  EXPECT_EQ(waiting->ending(), Ending::kLength);
  EXPECT_EQ(generated(*waiting), run_alone(model, request));
}

TEST(EngineContract, ALostDeviceEndsAllAndTheEngineSaysWhy) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  for (const auto fault : {FaultyExecutor::Fault::kError, FaultyExecutor::Fault::kBug}) {
    Engine engine = make_faulty_engine(model, 2, 4, ErrorCode::kDevice, fault);
    const std::string why = fault == FaultyExecutor::Fault::kBug ? "made up: a bug" : "made up: the pass failed";
    std::vector<std::shared_ptr<const Sequence>> sequences;
    const auto recorder = std::make_shared<Recorder>();
    for (int i = 0; i < 3; ++i) sequences.push_back(engine.submit(make_request(*model, 8, 10, 1)));
    engine.submit(engine.prepare(make_request(*model, 8, 10, 1)), recorder);
    engine.run();
    for (const auto& sequence : sequences) {
      EXPECT_EQ(sequence->ending(), Ending::kFailed);
      ASSERT_TRUE(sequence->failure());
      EXPECT_EQ(sequence->failure()->text, why);
    }
    EXPECT_EQ(recorder->events, "e");
    ASSERT_TRUE(engine.lost());
    EXPECT_EQ(engine.lost()->text, why);
    try {
      engine.submit(make_request(*model, 8, 10, 1));
      ADD_FAILURE() << "a lost engine took a request";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_THAT(error.what(), testing::HasSubstr(why));
    }
    EXPECT_FALSE(engine.step());
  }
}

// --- three ways to end -----------------------------------------------------------------------------------------------

TEST(EngineContract, CancelEndsOneAndLeavesTheOthersAlone) {
  const auto model = test::tiny_model(TinyKind::k31B);
  Engine engine = make_engine(model, 2);
  const Request request = make_request(*model, 9, 12, 1);
  const auto kept = engine.submit(request);
  const auto dropped = engine.submit(make_request(*model, 9, 12, 2));
  const auto never_started = engine.submit(make_request(*model, 9, 12, 3));
  engine.step();
  engine.cancel(*dropped);
  engine.cancel(*never_started);
  engine.run();
  EXPECT_EQ(dropped->ending(), Ending::kCancelled);
  EXPECT_EQ(never_started->ending(), Ending::kCancelled);
  EXPECT_EQ(never_started->processed(), 0u);
  EXPECT_EQ(kept->ending(), Ending::kLength);
  EXPECT_EQ(generated(*kept), run_alone(model, request));
  engine.cancel(*kept);  // nothing happens to what has ended
  EXPECT_EQ(kept->ending(), Ending::kLength);
}

TEST(EngineContract, DrainingFinishesWhatWasAcceptedAndTakesNothingNew) {
  const auto model = test::tiny_model(TinyKind::k31B);
  Engine engine = make_engine(model, 1);
  const Request request = make_request(*model, 9, 12, 1);
  const auto running = engine.submit(request);
  const auto waiting = engine.submit(request);
  engine.step();
  engine.drain();
  try {
    engine.submit(request);
    ADD_FAILURE() << "a draining engine took a request";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  engine.run();
  for (const auto& sequence : {running, waiting}) {
    EXPECT_EQ(sequence->ending(), Ending::kLength);
    EXPECT_EQ(generated(*sequence), run_alone(model, request));
  }
}

TEST(EngineContract, EndingAllIsAtOnceAndTheEngineCanGoOn) {
  const auto model = test::tiny_model(TinyKind::k31B);
  Engine engine = make_engine(model, 1);
  const Request request = make_request(*model, 9, 12, 1);
  const auto running = engine.submit(request);
  const auto waiting = engine.submit(request);
  engine.step();
  engine.end_all();
  EXPECT_EQ(running->ending(), Ending::kInterrupted);
  EXPECT_EQ(waiting->ending(), Ending::kInterrupted);
  EXPECT_FALSE(engine.step());
  const auto next = engine.submit(request);
  engine.run();
  EXPECT_EQ(generated(*next), run_alone(model, request));
}

TEST(EngineContract, APausedSequenceKeepsItsSlotAndGoesOnWhereItWas) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model, 2);
  const Request slow = make_request(*model, 9, 12, 1), other = make_request(*model, 5, 20, 2);
  const auto paused = engine.submit(slow);
  const auto running = engine.submit(other);
  while (paused->generated().size() < 3) engine.step();
  engine.pause(*paused, true);
  engine.run();
  EXPECT_EQ(paused->generated().size(), 3u);
  EXPECT_FALSE(paused->ended());
  EXPECT_EQ(generated(*running), run_alone(model, other));
  engine.pause(*paused, false);
  engine.run();
  EXPECT_EQ(generated(*paused), run_alone(model, slow));
}

}  // namespace
}  // namespace carat::engine
