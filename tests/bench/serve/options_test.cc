#include "serve/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "serve/scenarios.h"

namespace carat::serve_bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BenchOptions parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "serve_bench");
  int status = 0;
  auto options = parse_options(static_cast<int>(words.size()), words.data(), status);
  if (!options) throw std::runtime_error("exit " + std::to_string(status));
  return *options;
}

TEST(Options, AreThoseOfVllm) {
  const BenchOptions options = parsed({"--base-url",
                                       "http://h:1",
                                       "--backend",
                                       "openai-chat",
                                       "--dataset-name",
                                       "random",
                                       "--random-input-len",
                                       "30",
                                       "--random-output-len",
                                       "40",
                                       "--random-range-ratio",
                                       "0.5",
                                       "--random-prefix-len",
                                       "6",
                                       "--num-prompts",
                                       "9",
                                       "--request-rate",
                                       "inf",
                                       "--burstiness",
                                       "2",
                                       "--max-concurrency",
                                       "3",
                                       "--ignore-eos",
                                       "--goodput",
                                       "ttft:500,tpot:50",
                                       "--seed",
                                       "4",
                                       "--metric-percentiles",
                                       "50,99.9",
                                       "--metadata",
                                       "a=b=c"});
  EXPECT_EQ(options.target.backend, Backend::kChat);
  EXPECT_EQ(options.target.path(), "/v1/chat/completions");
  EXPECT_EQ(options.dataset.input_len, 30u);
  EXPECT_EQ(options.dataset.output_len, 40u);
  EXPECT_EQ(options.dataset.range_ratio, 0.5);
  EXPECT_EQ(options.dataset.prefix_len, 6u);
  EXPECT_EQ(options.dataset.num_prompts, 9u);
  EXPECT_EQ(options.load.burstiness, 2.0);
  EXPECT_EQ(options.load.max_concurrency, 3u);
  EXPECT_TRUE(options.target.ignore_eos);
  EXPECT_EQ(options.report.goodput.at("ttft"), 500.0);
  EXPECT_EQ(options.report.goodput.at("tpot"), 50.0);
  EXPECT_THAT(options.report.percentiles, ElementsAre(50, 99.9));
  EXPECT_EQ(options.report.metadata[0].second, "b=c");
}

TEST(Options, AScenarioIsASetOfDefaults) {
  const BenchOptions options = parsed({"--max-concurrency", "7", "--scenario", "agent", "--turns", "3"});
  EXPECT_EQ(options.scenario, "agent");
  EXPECT_EQ(options.dataset.dataset, Dataset::kAgent);
  EXPECT_EQ(options.dataset.system_len, 12000u);
  EXPECT_EQ(options.dataset.turns, 3u);
  EXPECT_EQ(options.load.max_concurrency, 7u);
  EXPECT_TRUE(options.target.ignore_eos);
  EXPECT_FALSE(parsed({"--scenario=1k1k", "--no-ignore-eos"}).target.ignore_eos);
}

TEST(Options, MistakesNameTheirFlag) {
  const auto complaint = [](std::vector<const char*> words) -> std::string {
    try {
      parsed(std::move(words));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(complaint({"--scenario", "none"}), HasSubstr("chat-short"));
  EXPECT_THAT(complaint({"--goodput", "ttft"}), HasSubstr("--goodput"));
  EXPECT_THAT(complaint({"--goodput", "itl:5"}), HasSubstr("--goodput"));
  EXPECT_THAT(complaint({"--header", "x"}), HasSubstr("--header"));
  EXPECT_THAT(complaint({"--dataset", "custom"}), HasSubstr("--dataset-path"));
  EXPECT_THAT(complaint({"--random-range-ratio", "2"}), HasSubstr("--random-range-ratio"));
  EXPECT_THAT(complaint({"--percentiles", "101"}), HasSubstr("--percentiles"));
  EXPECT_THAT(complaint({"--request-rate", "0"}), HasSubstr("--request-rate"));
  EXPECT_THAT(complaint({"--token-ids", "--backend", "openai-chat"}), HasSubstr("--token-ids"));
  EXPECT_THAT(complaint({"--token-ids", "--dataset", "agent"}), HasSubstr("--token-ids"));
}

TEST(Scenarios, AreAllValid) {
  const std::string help = scenario_help();
  for (const char* name : {"chat-short", "sharegpt-like", "sglang-random", "1k1k", "8k1k", "1k8k", "prefix-repetition",
                           "shared-10k", "agent", "agent-trace", "round-robin", "intruder"}) {
    EXPECT_THAT(help, HasSubstr(name));
    EXPECT_NO_THROW(parsed({"--scenario", name})) << name;
  }
}

}  // namespace
}  // namespace carat::serve_bench
