// Log-probabilities are those of the model: what sampling, guides, drafts and batches do about a choice does not touch
// them.
#include "engine/sampling/logprobs.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "engine/background_executor.h"
#include "engine/logits_executor.h"
#include "engine/runner/update_queue.h"
#include "engine/tiny_engine.h"

namespace carat::engine {
namespace {

using test::make_engine;
using test::make_request;
using test::small_options;
using test::TinyKind;
using test::Tokens;
using text::TokenId;

std::vector<double> log_softmax(std::span<const float> logits) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - std::log(sum));
  return result;
}

TEST(Logprobs, AreTheLogarithmsOfSoftmax) {
  const std::vector<float> logits = {1.0f, 4.0f, -2.0f, 4.0f, 0.5f};
  const std::vector<double> expected = log_softmax(logits);
  test::LogitsExecutor executor(logits);
  for (const uint32_t alternatives : {0u, 1u, 3u, 5u, 20u}) {
    for (TokenId chosen = 0; chosen < 5; ++chosen) {
      const ChoiceLogprobs found = logprobs_of(executor, 0, chosen, alternatives);
      EXPECT_NEAR(found.chosen, expected[static_cast<size_t>(chosen)], 1e-6) << chosen << " of " << alternatives;
      ASSERT_EQ(found.top.size(), std::min(alternatives, 5u));
      const TokenId order[] = {1, 3, 0, 4, 2};
      for (size_t i = 0; i < found.top.size(); ++i) {
        EXPECT_EQ(found.top[i].token, order[i]);
        EXPECT_NEAR(found.top[i].logprob, expected[static_cast<size_t>(order[i])], 1e-6);
      }
    }
  }
}

// Collects what a request is told.
struct Told : RequestSink {
  void update(const RequestUpdate& update) override {
    queue.update(update);
    EXPECT_TRUE(update.logprobs.empty() || update.logprobs.size() == update.tokens.size());
  }
  void wait() {
    for (;;) {
      const UpdateQueue::Update update = queue.wait();
      tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
      logprobs.insert(logprobs.end(), update.logprobs.begin(), update.logprobs.end());
      if (!update.end) continue;
      end = *update.end;
      return;
    }
  }
  UpdateQueue queue;
  Tokens tokens;
  std::vector<ChoiceLogprobs> logprobs;
  RequestEnd end;
};

// What an executor of its own says about the tokens after a prompt, one by one.
std::vector<std::vector<double>> softmaxes_after(const std::shared_ptr<const model::Model>& model, const Tokens& prompt,
                                                 const Tokens& tokens) {
  const auto executor = exec::make_reference_executor(model, small_options());
  Tokens all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end() - 1);
  std::vector<std::vector<double>> result;
  for (uint32_t i = 0; i < all.size(); ++i) {
    executor->forward(std::vector<exec::Row>{{all[i], i, 0, true}});
    if (i + 1 >= prompt.size()) result.push_back(log_softmax(executor->logits(0)));
  }
  return result;
}

void expect_exact(const std::shared_ptr<const model::Model>& model, const Request& request, const Told& told) {
  const auto expected = softmaxes_after(model, request.prompt, told.tokens);
  ASSERT_EQ(told.logprobs.size(), told.tokens.size());
  for (size_t t = 0; t < told.tokens.size(); ++t) {
    const std::vector<double>& of_model = expected[t];
    EXPECT_NEAR(told.logprobs[t].chosen, of_model[static_cast<size_t>(told.tokens[t])], 2e-5) << "token " << t;
    std::vector<double> sorted = of_model;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    ASSERT_EQ(told.logprobs[t].top.size(), *request.logprobs);
    for (size_t i = 0; i < told.logprobs[t].top.size(); ++i) {
      const TokenLogprob& entry = told.logprobs[t].top[i];
      EXPECT_NEAR(entry.logprob, of_model[static_cast<size_t>(entry.token)], 2e-5) << "token " << t << ", place " << i;
      EXPECT_NEAR(entry.logprob, sorted[i], 2e-5) << "token " << t << ", place " << i;
    }
  }
}

// Forces some tokens and forbids most others.
class FewTokens : public Guide {
 public:
  explicit FewTokens(size_t vocabulary) : words_((vocabulary + 63) / 64, 0) { words_[0] = 0xff00; }
  std::optional<TokenId> forced() override { return count_ % 3 == 1 ? std::optional<TokenId>(77) : std::nullopt; }
  std::span<const uint64_t> allowed() override { return words_; }
  void accept(TokenId) override { ++count_; }

 private:
  std::vector<uint64_t> words_;
  uint32_t count_ = 0;
};

std::vector<Request> requests_of_every_kind(const model::Model& model) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 4; ++seed) requests.push_back(make_request(model, 5 + 3 * seed, 12, seed));
  requests[0].logprobs = 20;
  requests[1].logprobs = 0;
  requests[1].sampling.temperature = 7.0f;
  requests[1].sampling.top_k = 0;
  requests[2].logprobs = 3;
  requests[2].sampling.bias = {{11, 500.0f}, {12, -std::numeric_limits<float>::infinity()}};
  requests[2].sampling.repeat_penalty = 1.9f;
  requests[3].logprobs = 5;
  requests[3].guide = std::make_shared<FewTokens>(model.config().V);
  return requests;
}

TEST(Logprobs, AreThoseOfTheModelWhateverChoosesTheToken) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const std::vector<Request> requests = requests_of_every_kind(*model);
  std::vector<std::shared_ptr<Told>> told;
  Runner runner(make_engine(model, 3));  // the last one has to wait
  for (const Request& request : requests) {
    told.push_back(std::make_shared<Told>());
    runner.submit(request, told.back());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    told[i]->wait();
    EXPECT_EQ(told[i]->end.ending, Ending::kLength);
    expect_exact(model, requests[i], *told[i]);
  }
}

TEST(Logprobs, PassesInTheBackgroundAndDraftsChangeNothing) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Request request = make_request(*model, 20, 30, 4);
  for (size_t i = 0; i < request.prompt.size(); ++i) request.prompt[i] = static_cast<TokenId>(i % 2 + 30);
  request.sampling.bias = {{30, 30.0f}, {31, 30.0f}};  // so that drafts are right now and then
  request.sampling.presence_penalty = 0.0f;
  request.logprobs = 2;
  for (const bool is_drafting : {false, true}) {
    SCOPED_TRACE(is_drafting);
    EngineOptions options;
    options.drafts.mode = is_drafting ? DraftMode::kOn : DraftMode::kOff;
    const auto told = std::make_shared<Told>();
    auto executor = std::make_unique<test::BackgroundExecutor>(exec::make_reference_executor(model, small_options()));
    Runner runner(Engine(std::move(executor), test::vocab_of(*model), options));
    runner.submit(request, told);
    told->wait();
    expect_exact(model, request, *told);
    EXPECT_EQ(told->end.figures.drafts.accepted > 0, is_drafting);
  }
}

TEST(Logprobs, AStopTokenIsNotHandedOutAndHasNone) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Runner runner(make_engine(model));
  Request request = make_request(*model, 5, 10, 2);
  request.ignore_stops = false;
  request.sampling.bias = {{runner.vocab().stops().front(), 1000.0f}};
  request.logprobs = 4;
  const auto told = std::make_shared<Told>();
  runner.submit(request, told);
  told->wait();
  EXPECT_EQ(told->end.ending, Ending::kStopToken);
  EXPECT_TRUE(told->tokens.empty());
  EXPECT_TRUE(told->logprobs.empty());
}

TEST(Logprobs, AreNotToldUnlessAskedFor) {
  const auto model = test::tiny_model(TinyKind::k12B);
  Runner runner(make_engine(model));
  const auto told = std::make_shared<Told>();
  runner.submit(make_request(*model, 5, 10, 2), told);
  told->wait();
  EXPECT_EQ(told->tokens.size(), 10u);
  EXPECT_TRUE(told->logprobs.empty());
}

TEST(Logprobs, MoreThanTheVocabularyAreRefused) {
  const auto model = test::tiny_model(TinyKind::k12B);
  const Engine engine = make_engine(model);
  Request request = make_request(*model, 5, 10, 2);
  request.logprobs = model->config().V;
  engine.prepare(request);
  request.logprobs = model->config().V + 1;
  try {
    engine.prepare(request);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("logprobs"));
  }
}

}  // namespace
}  // namespace carat::engine
