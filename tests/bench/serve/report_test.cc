#include "serve/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/files.h"

namespace carat::serve_bench {
namespace {

using testing::HasSubstr;
using testing::Not;

LoadResult small_load() {
  LoadResult load{.seconds = 2.0, .most_at_once = 3};
  load.requests.push_back({.is_complete = true,
                           .first_token = 0.1,
                           .latency = 0.3,
                           .gaps = {0.1, 0.1},
                           .prompt_tokens = 10,
                           .cached_tokens = 4,
                           .output_tokens = 3,
                           .has_usage = true,
                           .answer = R"(a\nb)"});
  load.requests.push_back({.error_kind = "timeout", .error = "timeout: too long"});
  return load;
}

nlohmann::ordered_json small_result(BenchOptions options = {}) {
  const LoadResult load = small_load();
  return result_json(options, "gemma", figures_of(load, options.report), load, "20261120-120000");
}

TEST(Report, HasTheFieldsOfVllm) {
  BenchOptions options;
  options.report.percentiles = {99, 99.9};
  const auto result = small_result(options);
  for (const char* name : {"date",
                           "endpoint_type",
                           "backend",
                           "label",
                           "model_id",
                           "tokenizer_id",
                           "num_prompts",
                           "request_rate",
                           "burstiness",
                           "max_concurrency",
                           "duration",
                           "completed",
                           "failed",
                           "total_input_tokens",
                           "total_output_tokens",
                           "request_throughput",
                           "request_goodput",
                           "output_throughput",
                           "total_token_throughput",
                           "max_output_tokens_per_s",
                           "max_concurrent_requests",
                           "mean_ttft_ms",
                           "median_ttft_ms",
                           "std_ttft_ms",
                           "p99_ttft_ms",
                           "p99.9_ttft_ms",
                           "mean_tpot_ms",
                           "median_tpot_ms",
                           "std_tpot_ms",
                           "p99_tpot_ms",
                           "mean_itl_ms",
                           "median_itl_ms",
                           "std_itl_ms",
                           "p99_itl_ms",
                           "mean_e2el_ms",
                           "median_e2el_ms",
                           "std_e2el_ms",
                           "p99_e2el_ms"}) {
    EXPECT_TRUE(result.contains(name)) << name;
  }
  EXPECT_EQ(result["request_rate"], "inf");
  EXPECT_TRUE(result["max_concurrency"].is_null());
  EXPECT_EQ(result["completed"], 1);
  EXPECT_EQ(result["total_output_tokens"], 3);
  EXPECT_NEAR(result["mean_tpot_ms"].get<double>(), 100.0, 1e-9);
  EXPECT_EQ(result["carat"]["errors_by_kind"]["timeout"]["count"], 1);
  EXPECT_EQ(result["carat"]["total_cached_tokens"], 4);
  EXPECT_FALSE(result.contains("itls"));
}

TEST(Report, DetailsAreOneForEachRequest) {
  BenchOptions options;
  options.report.detailed = true;
  const auto result = small_result(options);
  EXPECT_EQ(result["input_lens"], nlohmann::ordered_json({10, 0}));
  EXPECT_EQ(result["output_lens"], nlohmann::ordered_json({3, 0}));
  EXPECT_EQ(result["itls"][0].size(), 2u);
  EXPECT_EQ(result["generated_texts"][0], "a\nb");
  EXPECT_EQ(result["errors"][1], "timeout: too long");
}

TEST(Report, TheTableIsThatOfVllm) {
  const std::string table = result_table(small_result(), {});
  EXPECT_THAT(table, HasSubstr("============ Serving Benchmark Result ============\n"));
  EXPECT_THAT(table, HasSubstr("Successful requests:                     1         \n"));
  EXPECT_THAT(table, HasSubstr("Output token throughput (tok/s):         1.50      \n"));
  EXPECT_THAT(table, HasSubstr("---------------Time to First Token----------------\n"));
  EXPECT_THAT(table, HasSubstr("P99 TTFT (ms):                           100.00    \n"));
  EXPECT_THAT(table, HasSubstr("Failed, timeout:                         1          timeout: too long\n"));
  EXPECT_THAT(table, Not(HasSubstr("intruder")));
  EXPECT_THAT(table, Not(HasSubstr("goodput")));
}

TEST(Report, ComparesWithAnEarlierResult) {
  auto earlier = small_result();
  earlier["output_throughput"] = 1.0;
  const std::string table = result_table(small_result(), earlier);
  EXPECT_THAT(table, HasSubstr("Output token throughput (tok/s):         1.50       1.00        +50.0%\n"));
}

TEST(Report, IsSavedAndRead) {
  const carat::test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "result.json").string();
  save_result(small_result(), path);
  EXPECT_EQ(load_result(path), small_result());
  EXPECT_THROW(load_result("/nowhere/x"), Error);
  EXPECT_THROW(save_result(small_result(), "/nowhere/x"), Error);
}

}  // namespace
}  // namespace carat::serve_bench
