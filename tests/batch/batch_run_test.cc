#include "batch/batch_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/faulty_executor.h"
#include "runtime/executor_factory.h"
#include "runtime/model_loader.h"
#include "server/server_log.h"
#include "server/service/model_facts.h"
#include "support/files.h"
#include "support/raised_error.h"

namespace carat::batch {
namespace {

using nlohmann::json;

constexpr uint32_t kParallel = 4;
constexpr int kLines = 40;

// A service of the demo model, whose executor may fail.
class Served {
 public:
  using Wrap = std::function<std::unique_ptr<exec::Executor>(std::unique_ptr<exec::Executor>)>;

  explicit Served(const BatchRunOptions& options, const Wrap& wrap = {}) {
    const runtime::LoadedModel loaded = runtime::load_model(test::model_path("demo-e-q8_0.gguf"));
    exec::ExecutorOptions executor_options;
    executor_options.context = 256;
    executor_options.sequences = executor_options.outputs = kParallel;
    executor_options.threads = 1;
    auto executor = runtime::make_executor(runtime::Device::kCpu, loaded.model, executor_options, {});
    if (wrap) executor = wrap(std::move(executor));
    auto chat = text::ChatTemplate::from_vocab(*loaded.vocab, loaded.model->config().is_large());
    server::ServiceOptions service_options;
    service_options = options_for_batch(service_options, options.at_a_time);
    engine::Engine engine(std::move(executor), loaded.vocab, engine::EngineOptions());
    server::ServerFacts facts = server::facts_of(engine, chat, service_options.turns, {});
    service_ = std::make_unique<server::Service>(std::move(engine), std::move(chat), std::move(facts), service_options,
                                                 metrics_, log_);
  }
  server::Service& service() { return *service_; }

 private:
  server::ServerMetrics metrics_;
  server::ServerLog log_{nullptr, false, false};
  std::unique_ptr<server::Service> service_;
};

class BatchRunTest : public testing::Test {
 protected:
  BatchRunTest() {
    std::string text;
    for (int i = 0; i < kLines; ++i) {
      text += json{{"custom_id", std::to_string(i)},
                   {"method", "POST"},
                   {"url", "/v1/completions"},
                   {"body", {{"prompt", "nginx is"}, {"max_tokens", 16 + i % 17}, {"ignore_eos", true}}}}
                  .dump() +
              "\n";
    }
    test::write_text(folder_.file("in"), text);
    input_ = std::make_unique<BatchInput>(folder_.file("in"), Shard());
    open();
  }
  void open() {
    output_.reset();
    output_ = std::make_unique<BatchOutput>(folder_.file("out"), folder_.file("errors"), *input_, "demo");
  }
  void run(const Served::Wrap& wrap = {}) {
    Served served(options_, wrap);
    run_batch(served.service(), *input_, *output_, options_, [](const BatchProgress&) {});
  }
  static Served::Wrap failing(int pass, ErrorCode code) {
    return [=](std::unique_ptr<exec::Executor> inner) {
      return std::make_unique<test::FaultyExecutor>(std::move(inner), pass, code);
    };
  }

  test::TemporaryDirectory folder_;
  BatchRunOptions options_{.at_a_time = 2 * kParallel + 2};
  std::unique_ptr<BatchInput> input_;
  std::unique_ptr<BatchOutput> output_;
};

TEST_F(BatchRunTest, TheEngineIsFullUntilTheLastLines) {
  Served served(options_);
  std::vector<uint64_t> done;
  run_batch(served.service(), *input_, *output_, options_, [&](const BatchProgress& progress) {
    EXPECT_EQ(progress.total, static_cast<uint64_t>(kLines));
    done.push_back(progress.done);
  });
  EXPECT_TRUE(output_->is_finished());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), static_cast<uint64_t>(kLines));
  const engine::PassCounts passes =
      served.service().snapshot().totals.passes[static_cast<size_t>(engine::PassMix::kDecode)];
  ASSERT_GT(passes.passes, 100u);
  // The mean of all passes is below its most by the first and the last lines, and by places that change hands.
  EXPECT_GT(static_cast<double>(passes.rows) / static_cast<double>(passes.passes), 0.8 * kParallel);
}

TEST_F(BatchRunTest, LinesOfALostEngineHaveNotFailed) {
  const test::RaisedError error = test::error_of([&] { run(failing(60, ErrorCode::kDevice)); });
  EXPECT_EQ(error.code, ErrorCode::kDevice);
  EXPECT_THAT(error.message, testing::HasSubstr("made up"));
  EXPECT_GT(output_->done(), 0u);
  EXPECT_LT(output_->done(), static_cast<uint64_t>(kLines));
  EXPECT_EQ(output_->failed(), 0u);
  open();
  run();
  EXPECT_EQ(output_->failed(), 0u);
  EXPECT_TRUE(output_->is_finished());
}

TEST_F(BatchRunTest, AFailureOfSomeLinesIsTheirs) {
  run(failing(60, ErrorCode::kNonFinite));
  EXPECT_TRUE(output_->is_finished());
  EXPECT_GE(output_->failed(), 1u);
  EXPECT_LE(output_->failed(), uint64_t{kParallel});
  std::istringstream lines(test::read_text(folder_.file("errors")));
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(json::parse(line)["response"]["status_code"], 500);
}

TEST_F(BatchRunTest, AnInterruptionKeepsWhatIsDone) {
  std::atomic<bool> interrupted{false};
  options_.interrupted = &interrupted;
  Served served(options_);
  const test::RaisedError error = test::error_of([&] {
    run_batch(served.service(), *input_, *output_, options_,
              [&](const BatchProgress& progress) { interrupted = progress.done > 5; });
  });
  EXPECT_EQ(error.code, ErrorCode::kInterrupted);
  const uint64_t done = output_->done();
  EXPECT_GT(done, 5u);
  open();
  EXPECT_EQ(output_->done(), done);
}

}  // namespace
}  // namespace carat::batch
