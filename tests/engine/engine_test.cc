#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "engine/tiny_engine.h"
#include "runtime/executor_factory.h"

namespace carat::engine {
namespace {

using runtime::Device;
using runtime::make_executor;
using runtime::parse_device;
using test::generated;
using test::make_engine;
using test::make_request;
using test::run_alone;
using test::small_options;
using test::TinyKind;
using text::TokenId;

class RaggedEngine : public testing::TestWithParam<TinyKind> {};

// The reference executor gives the same bits however rows are batched, so the texts must be equal, not just close.
TEST_P(RaggedEngine, GivesEachRequestWhatItGetsAlone) {
  const auto model = test::tiny_model(GetParam());
  Engine engine = make_engine(model, 3);
  const size_t prompts[] = {1, 30, 5, 17, 2};
  std::vector<Request> requests;
  std::vector<std::shared_ptr<const Sequence>> sequences;
  std::vector<std::vector<TokenId>> streamed(std::size(prompts));
  for (size_t i = 0; i < std::size(prompts); ++i) {
    requests.push_back(make_request(*model, prompts[i], static_cast<uint32_t>(6 + 3 * i), i + 1));
    sequences.push_back(
        engine.submit(requests.back(), [&streamed, i](TokenId token) { streamed[i].push_back(token); }));
  }
  engine.run();
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(sequences[i]->ending(), Ending::kLength);
    EXPECT_EQ(generated(*sequences[i]), run_alone(model, requests[i])) << "request " << i;
    EXPECT_EQ(streamed[i], generated(*sequences[i])) << "request " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Family, RaggedEngine, testing::ValuesIn(test::kTinyKinds),
                         [](const auto& kind) { return std::string(test::tiny_name(kind.param)); });

TEST(Engine, ALongPromptDoesNotStallWhoIsGenerating) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model, 2);
  const auto talker = engine.submit(make_request(*model, 2, 60, 1));
  while (talker->generated().empty()) engine.step();
  const auto reader = engine.submit(make_request(*model, 40, 1, 2));
  while (!reader->ended()) {
    const size_t before = talker->generated().size();
    engine.step();
    ASSERT_EQ(talker->generated().size(), before + 1);
  }
}

TEST(Engine, EndsAtAStopTokenAndKeepsItOutOfTheText) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model);
  const TokenId stop = engine.vocab().stops().front();
  Request request = make_request(*model, 4, 10, 2);
  request.ignore_stops = false;
  request.sampling.bias = {{stop, 1000.0f}};
  const auto sequence = engine.submit(request, [](TokenId) { ADD_FAILURE() << "a stop token was handed out"; });
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kStopToken);
  EXPECT_EQ(sequence->stop_token(), stop);
  EXPECT_TRUE(sequence->generated().empty());

  request.ignore_stops = true;
  const auto ignoring = engine.submit(request);
  engine.run();
  EXPECT_EQ(ignoring->ending(), Ending::kLength);
  EXPECT_EQ(generated(*ignoring), std::vector<TokenId>(10, stop));
}

TEST(Engine, SaysWhenTheContextIsFull) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model);
  const uint32_t context = engine.executor().options().context;
  const auto sequence = engine.submit(make_request(*model, context - 3, Request::kUnlimited, 2));
  const auto exact = engine.submit(make_request(*model, context, Request::kUnlimited, 3));
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kContextFull);
  EXPECT_EQ(sequence->generated().size(), 4u);  // three fit the cache; the fourth is chosen but cannot be run
  EXPECT_EQ(exact->ending(), Ending::kContextFull);
  EXPECT_EQ(exact->generated().size(), 1u);
}

TEST(Engine, OnlyReadsThePromptWhenNoTokenIsWanted) {
  const auto model = test::tiny_model(TinyKind::kE4B);
  Engine engine = make_engine(model);
  const auto sequence = engine.submit(make_request(*model, 20, 0, 2));
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kLength);
  EXPECT_EQ(sequence->processed(), 20u);
  EXPECT_TRUE(sequence->generated().empty());
}

TEST(Engine, AnInterruptionEndsAllAndTheNextRequestWorks) {
  const auto model = test::tiny_model(TinyKind::k26B);
  std::atomic<bool> cancelled{false};
  exec::ExecutorOptions options = small_options();
  options.cancelled = &cancelled;
  Engine engine = make_engine(model, options);
  const Request request = make_request(*model, 12, 20, 1);
  const auto running = engine.submit(request, [&cancelled](TokenId) { cancelled = true; });
  const auto waiting = engine.submit(request);
  engine.run();
  EXPECT_EQ(running->ending(), Ending::kInterrupted);
  EXPECT_EQ(running->generated().size(), 1u);
  EXPECT_EQ(waiting->ending(), Ending::kInterrupted);
  EXPECT_TRUE(waiting->generated().empty());

  cancelled = false;
  const auto again = engine.submit(request);
  engine.run();
  EXPECT_EQ(generated(*again), run_alone(model, request));
}

TEST(Engine, ReusesTheCacheOfASharedPrefix) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model);
  Request request = make_request(*model, 10, 3, 2);
  const auto first = engine.submit(request);
  engine.run();

  // The next turn: the first prompt, its answer, and more.
  Request next = request;
  next.prompt.assign(first->tokens().begin(), first->tokens().end());
  next.prompt.push_back(5);
  next.prompt.push_back(6);
  const auto second = engine.submit(next);
  engine.run();
  EXPECT_EQ(second->prefix_shared(), 12u);  // the last answer token was chosen but never run
  EXPECT_EQ(second->prefix_reused(), 12u);
  EXPECT_EQ(generated(*second), run_alone(model, next));
}

TEST(Engine, RunsThePromptAgainWhenTheWindowHasMovedOn) {
  const auto model = test::tiny_model(TinyKind::kE2B);  // window 8, so one page of 64 positions holds it
  exec::ExecutorOptions options = test::small_options();
  options.context = 300;
  Engine engine = make_engine(model, options);
  const Request request = make_request(*model, 90, 60, 2);
  engine.submit(request);
  engine.run();
  const auto again = engine.submit(request);
  engine.run();
  EXPECT_EQ(again->prefix_shared(), 90u);
  EXPECT_EQ(again->prefix_reused(), 0u);
  EXPECT_EQ(again->prefix_loss(), PrefixLoss::kWindow);
  EXPECT_EQ(generated(*again), run_alone(model, request, options));
  // Where prompts part is remembered from then on.
  const auto third = engine.submit(request);
  engine.run();
  EXPECT_EQ(third->prefix_reused(), 89u);
  EXPECT_EQ(third->prefix_loss(), PrefixLoss::kNone);
  EXPECT_EQ(generated(*third), generated(*again));
}

TEST(Engine, TakesTheSlotThatSharesMost) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model, 2);
  Request a = make_request(*model, 10, 2, 2);
  Request b = make_request(*model, 10, 2, 4);
  engine.submit(a);
  engine.submit(b);
  engine.run();
  b.prompt.push_back(7);
  const auto sequence = engine.submit(b);
  engine.run();
  EXPECT_EQ(sequence->prefix_reused(), 10u);
}

TEST(Engine, WhoWantsNothingCachedGetsNothingAndLeavesItsPromptToOthers) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model);
  Request request = make_request(*model, 10, 2, 2);
  engine.submit(request);
  engine.run();
  request.cache_prompt = false;
  const auto anew = engine.submit(request);
  engine.run();
  EXPECT_EQ(anew->prefix_shared(), 0u);
  EXPECT_EQ(anew->prefix_reused(), 0u);
  EXPECT_EQ(generated(*anew), run_alone(model, request));
  request.cache_prompt = true;
  const auto again = engine.submit(request);
  engine.run();
  EXPECT_EQ(again->prefix_reused(), 9u);
}

TEST(Engine, ThoseOfDifferentSaltsShareNothing) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model, 2);
  Request request = make_request(*model, 10, 2, 2);
  const auto reused = [&](std::string salt) {
    request.cache_salt = std::move(salt);
    const auto sequence = engine.submit(request);
    engine.run();
    EXPECT_EQ(generated(*sequence), run_alone(model, request));
    EXPECT_EQ(sequence->prefix_shared() > 0, sequence->prefix_reused() > 0);
    return sequence->prefix_reused();
  };
  EXPECT_EQ(reused("one"), 0u);
  EXPECT_EQ(reused("two"), 0u);
  EXPECT_EQ(reused("one"), 9u);
  EXPECT_EQ(reused("two"), 9u);
  EXPECT_EQ(reused(""), 0u);
  EXPECT_EQ(reused(""), 9u);
  EXPECT_EQ(reused("one"), 9u);
}

// Lets the model choose among three tokens, except where a token is forced.
class ThreeTokens : public Guide {
 public:
  ThreeTokens(size_t vocabulary, TokenId first, std::vector<TokenId> forced)
      : first_(first), forced_(std::move(forced)), words_((vocabulary + 63) / 64) {
    for (TokenId token = first; token < first + 3; ++token) words_[token / 64] |= uint64_t{1} << token % 64;
  }
  std::optional<TokenId> forced() override {
    if (seen.size() < 2 || seen.size() - 2 >= forced_.size()) return std::nullopt;
    return forced_[seen.size() - 2];
  }
  std::span<const uint64_t> allowed() override { return words_; }
  void accept(TokenId token) override { seen.push_back(token); }

  std::vector<TokenId> seen;

 private:
  TokenId first_;
  std::vector<TokenId> forced_;
  std::vector<uint64_t> words_;
};

TEST(Engine, AGuideChoosesAndForbids) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  Engine engine = make_engine(model);
  Request request = make_request(*model, 9, 8, 3);
  const auto guide = std::make_shared<ThreeTokens>(model->config().V, 20, std::vector<TokenId>{5, 6});
  request.guide = guide;
  const auto sequence = engine.submit(std::move(request));
  engine.run();
  const test::Tokens tokens = generated(*sequence);
  ASSERT_EQ(tokens.size(), 8u);
  EXPECT_EQ(guide->seen, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 2 || i == 3) {
      EXPECT_EQ(tokens[i], i == 2 ? 5 : 6);
    } else {
      EXPECT_TRUE(tokens[i] >= 20 && tokens[i] < 23) << tokens[i];
    }
  }
}

// Takes a quarter of a second of a clock that nothing else moves.
class SlowGuide : public ThreeTokens {
 public:
  SlowGuide(size_t vocabulary, double* seconds) : ThreeTokens(vocabulary, 20, {5, 6}), seconds_(seconds) {}
  std::span<const uint64_t> allowed() override {
    *seconds_ += 0.25;
    return ThreeTokens::allowed();
  }

 private:
  double* seconds_;
};

TEST(Engine, CountsTheTimeOfGuides) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  double seconds = 0.0;
  Engine engine(exec::make_reference_executor(model, small_options(2)), test::vocab_of(*model),
                {.drafts = {}, .clock = [&seconds] { return seconds; }});
  Request request = make_request(*model, 9, 8, 3);
  const auto free = engine.submit(request);
  request.guide = std::make_shared<SlowGuide>(model->config().V, &seconds);
  const auto guided = engine.submit(request);
  double of_passes = 0.0;
  bool has_more = true;
  while (has_more) {
    has_more = engine.step();
    of_passes += engine.last_pass().mask_seconds;
  }
  EXPECT_EQ(guided->mask_seconds(), 6 * 0.25);  // nothing is asked where a token is forced
  EXPECT_EQ(guided->figures().mask_seconds, 6 * 0.25);
  EXPECT_EQ(of_passes, 6 * 0.25);
  EXPECT_EQ(free->mask_seconds(), 0.0);
}

TEST(Engine, RefusesPromptsItCannotRun) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Engine engine = make_engine(model);
  const auto refused = [&engine](std::vector<TokenId> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    try {
      engine.submit(request);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kBadArgument;
    }
    return false;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({-1}));
  EXPECT_TRUE(refused({static_cast<TokenId>(model->config().V)}));
  EXPECT_TRUE(refused(std::vector<TokenId>(97, 1)));
  Request request = make_request(*model, 4, 2, 2);
  request.stop_tokens = {static_cast<TokenId>(model->config().V)};
  EXPECT_THROW(engine.submit(request), Error);
  EXPECT_FALSE(engine.step());
}

TEST(Engine, RefusesAnExecutorWithFewerRowsThanSequences) {
  const auto model = test::tiny_model(TinyKind::k12B);
  exec::ExecutorOptions options = small_options(5);  // but 4 outputs
  EXPECT_THROW(make_engine(model, options), Error);
}

TEST(ExecutorFactory, KnowsItsDevices) {
  EXPECT_EQ(parse_device("auto"), Device::kAuto);
  EXPECT_EQ(parse_device("reference"), Device::kReference);
  EXPECT_THROW(parse_device("tpu"), Error);
  const auto model = test::tiny_model(TinyKind::kE2B);
  EXPECT_EQ(make_executor(Device::kReference, model, small_options())->name(), "reference");
  EXPECT_EQ(make_executor(Device::kCpu, model, small_options())->name(), "cpu");
#ifndef CARAT_HAVE_CUDA
  EXPECT_EQ(make_executor(Device::kAuto, model, small_options())->name(), "cpu");
  EXPECT_THROW(make_executor(Device::kGpu, model, small_options()), Error);
#endif
}

TEST(ExecutorFactory, ChoosesTheChunkWhenItIsLeftOpen) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  for (const Device device : {Device::kReference, Device::kCpu}) {
    exec::ExecutorOptions options = small_options();
    options.chunk = 0;
    options.context = 1000;
    options.sequences = 2;
    EXPECT_EQ(make_executor(device, model, options)->options().chunk, exec::kDefaultChunk);
    options.context = 100;
    EXPECT_EQ(make_executor(device, model, options)->options().chunk, 100u);
    options.context = 3;  // every sequence needs a row of a step
    options.sequences = 5;
    EXPECT_EQ(make_executor(device, model, options)->options().chunk, 5u);
  }
}

TEST(ExecutorFactory, RefusesADrafter) {
  const auto drafter = test::load_draft(test::tiny_drafter_draft(test::tiny_shape(TinyKind::kE2B)));
  try {
    make_executor(Device::kReference, drafter, small_options());
    ADD_FAILURE() << "a drafter was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace carat::engine
