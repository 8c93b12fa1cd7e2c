#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "engine/executor_factory.h"
#include "exec/reference/reference_executor.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace carat::engine {
namespace {

using test::TinyKind;
using text::TokenId;

std::shared_ptr<const text::Vocab> vocab_of(const model::Model& model) {
  return text::Vocab::from_metadata(model.file().metadata());
}

exec::ExecutorOptions small_options(uint32_t sequences = 1) {
  exec::ExecutorOptions options;
  options.context = 96;
  options.sequences = sequences;
  options.chunk = 7;
  options.outputs = 4;
  options.threads = 1;
  return options;
}

Engine make_engine(const std::shared_ptr<const model::Model>& model, const exec::ExecutorOptions& options) {
  return Engine(exec::make_reference_executor(model, options), vocab_of(*model));
}

Engine make_engine(const std::shared_ptr<const model::Model>& model, uint32_t sequences = 1) {
  return make_engine(model, small_options(sequences));
}

std::vector<TokenId> random_prompt(const model::Model& model, size_t count, uint64_t seed) {
  test::Random random(seed);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random.below(model.config().V)));
  return tokens;
}

Request make_request(const model::Model& model, size_t prompt, uint32_t max_tokens, uint64_t seed) {
  Request request;
  request.prompt = random_prompt(model, prompt, seed);
  request.max_tokens = max_tokens;
  request.ignore_stops = true;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.presence_penalty = 0.3f;
  request.sampling.seed = seed;
  return request;
}

std::vector<TokenId> generated(const Sequence& sequence) {
  return {sequence.generated().begin(), sequence.generated().end()};
}

std::vector<TokenId> run_alone(const std::shared_ptr<const model::Model>& model, const Request& request) {
  Engine engine = make_engine(model);
  const auto sequence = engine.submit(request);
  engine.run();
  return generated(*sequence);
}

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

TEST(Engine, CancelEndsOneAndLeavesTheOthersAlone) {
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
  EXPECT_EQ(dropped->ending(), Ending::kInterrupted);
  EXPECT_EQ(never_started->ending(), Ending::kInterrupted);
  EXPECT_EQ(never_started->processed(), 0u);
  EXPECT_EQ(kept->ending(), Ending::kLength);
  EXPECT_EQ(generated(*kept), run_alone(model, request));
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
  const auto model = test::tiny_model(TinyKind::kE2B);  // window 8, so rings of 8 + 7 positions
  Engine engine = make_engine(model);
  const Request request = make_request(*model, 20, 40, 2);
  engine.submit(request);
  engine.run();
  const auto again = engine.submit(request);
  engine.run();
  EXPECT_EQ(again->prefix_shared(), 20u);
  EXPECT_EQ(again->prefix_reused(), 0u);
  EXPECT_EQ(generated(*again), run_alone(model, request));
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
  const std::vector<TokenId> tokens = generated(*sequence);
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
  EXPECT_FALSE(engine.step());
}

TEST(Engine, RefusesAnExecutorWithFewerRowsThanSequences) {
  const auto model = test::tiny_model(TinyKind::k12B);
  exec::ExecutorOptions options = small_options(5);  // but 4 outputs
  EXPECT_THROW(make_engine(model, options), Error);
}

// Fails in one chosen pass, as a device or a damaged weight would.
class FaultyExecutor : public exec::Executor {
 public:
  FaultyExecutor(std::unique_ptr<exec::Executor> inner, int failing_pass)
      : inner_(std::move(inner)), passes_left_(failing_pass) {}
  std::string_view name() const override { return "faulty"; }
  const model::Model& model() const override { return inner_->model(); }
  const exec::ExecutorOptions& options() const override { return inner_->options(); }
  void forward(std::span<const exec::Row> rows) override {
    if (passes_left_-- == 0) fail(ErrorCode::kNonFinite, "made up");
    inner_->forward(rows);
  }
  uint32_t outputs() const override { return inner_->outputs(); }
  std::span<const float> logits(uint32_t output) override { return inner_->logits(output); }
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override { inner_->best(output, k, out); }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override {
    inner_->logits_of(output, tokens, out);
  }
  uint32_t length(uint32_t sequence) const override { return inner_->length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return inner_->truncate(sequence, n); }

 private:
  std::unique_ptr<exec::Executor> inner_;
  int passes_left_;
};

TEST(Engine, AFailedPassEndsWhoRanAndWaitingRequestsStillRun) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  auto faulty = std::make_unique<FaultyExecutor>(exec::make_reference_executor(model, small_options()), 4);
  Engine engine(std::move(faulty), vocab_of(*model));
  const Request request = make_request(*model, 8, 10, 1);
  const auto failing = engine.submit(request);
  const auto waiting = engine.submit(request);
  try {
    engine.run();
    ADD_FAILURE() << "the failure was swallowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
  }
  EXPECT_EQ(failing->ending(), Ending::kFailed);
  engine.run();
  EXPECT_EQ(waiting->ending(), Ending::kLength);
  EXPECT_EQ(generated(*waiting), run_alone(model, request));
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
