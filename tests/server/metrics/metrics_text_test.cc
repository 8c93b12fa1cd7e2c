// What GET /metrics answers, under every set of names.
#include "server/metrics/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "server/metrics/exposition_check.h"

namespace carat::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr MetricsCompat kOwnOnly{.vllm = false, .llamacpp = false};
constexpr MetricsCompat kAll{.vllm = true, .llamacpp = true};

// A server that has done a little of everything.
struct Busy {
  ServerMetrics metrics;
  HttpFigures http{.connections = 3, .accepted = 20, .refused = 1};
  engine::RunnerSnapshot runner;
  ServerFacts facts;
  ProcessFigures process;

  Busy() {
    metrics.set_state(ServerState::kReady);
    metrics.enter(ServiceStage::kPreparing);
    metrics.count_request("openai", "/v1/chat/completions", 200);
    metrics.observe_first_token(0.03);
    metrics.observe_gap(0.004);
    metrics.observe_gap(0.4);
    metrics.count_bad_tool_call();
    metrics.count_generation({.answers = {{.generated_tokens = 3, .thought_tokens = 1, .decode_seconds = 0.404}},
                              .max_tokens = 64,
                              .prompt_tokens = 100,
                              .known_tokens = 80,
                              .cached_tokens = 60,
                              .lost_reason = LostReason::kTemplate,
                              .lost_tokens = 20,
                              .queue_seconds = 0.001,
                              .prefill_seconds = 0.02,
                              .total_seconds = 0.45});
    metrics.count_generation({.answers = {{.outcome = AnswerOutcome::kCancelled}},
                              .cancelled_in = RequestPhase::kQueued,
                              .total_seconds = 2000.0});
    runner.running = 2;
    runner.waiting = 4;
    runner.cached_tokens = 250;
    runner.cache_capacity = 1000;
    runner.prompt_tokens_per_second = 12.5;
    runner.generated_tokens_per_second = 99.0;
    runner.totals.prompt_tokens_run = 40;
    runner.totals.prompt_tokens_reused = 60;
    runner.totals.generated_tokens = 3;
    runner.totals.drafted_tokens = 10;
    runner.totals.accepted_tokens = 7;
    runner.totals.mask_seconds = 0.75;
    runner.totals.passes[0].add(0.004, 1);
    runner.totals.passes[0].add(5.0, 2);
    runner.totals.passes[1].add(0.02, 300);
    runner.totals.passes[2].add(0.03, 10000);
    facts.model_id = "gemma-4-e4b \"Q8_0\"";
    facts.format = "Q8_0";
    facts.context = 4096;
    process.open_files = 12;
    process.most_files = 1024;
    process.cpu_seconds = 1.5;
  }
  std::string text(const MetricsCompat& compat) const {
    return metrics_text({.version = "1.2",
                         .executor = "cuda",
                         .server = metrics.figures(),
                         .http = http,
                         .runner = runner,
                         .facts = &facts,
                         .process = process},
                        compat);
  }
};

TEST(MetricsText, IsWellFormedInEveryCombination) {
  const Busy busy;
  for (const MetricsCompat& compat :
       {kOwnOnly, kAll, MetricsCompat{}, MetricsCompat{.vllm = false, .llamacpp = true}}) {
    EXPECT_THAT(test::check_exposition(busy.text(compat)).problems, testing::IsEmpty());
  }
  const ServerMetrics fresh;
  const HttpFigures http;
  const std::string loading = metrics_text({.version = "1.2", .server = fresh.figures(), .http = http}, kAll);
  EXPECT_THAT(test::check_exposition(loading).problems, testing::IsEmpty());
  EXPECT_THAT(loading, HasSubstr("carat_state{state=\"loading\"} 1\ncarat_state{state=\"ready\"} 0\n"));
  EXPECT_THAT(loading, HasSubstr("carat_requests_running 0\n"));
  EXPECT_THAT(loading, Not(HasSubstr("kv_cache"))) << "there is no cache before there is a model";
}

TEST(MetricsText, SaysWhatGatewaysRead) {
  const auto samples = test::check_exposition(Busy().text(kAll)).samples;
  EXPECT_EQ(samples.at("carat_requests_running"), 2);
  EXPECT_EQ(samples.at("carat_requests_waiting"), 5) << "those that are prepared wait, too";
  EXPECT_EQ(samples.at("carat_kv_cache_usage_ratio"), 0.25);
  const std::string model = "{model_name=\"gemma-4-e4b \\\"Q8_0\\\"\",engine=\"0\"}";
  EXPECT_EQ(samples.at("vllm:num_requests_running" + model), 2);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting" + model), 5);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc" + model), 0.25);
  EXPECT_EQ(samples.at("vllm:gpu_cache_usage_perc" + model), 0.25);
  EXPECT_EQ(samples.at("vllm:gpu_prefix_cache_hits_total" + model), 60);
  EXPECT_EQ(samples.at("vllm:gpu_prefix_cache_queries_total" + model), 100);
  EXPECT_EQ(samples.at("llamacpp:requests_processing"), 2);
  EXPECT_EQ(samples.at("llamacpp:requests_deferred"), 5);
}

// Only executors whose caches are pages have them.
TEST(MetricsText, SaysWhatPagesAreUsedFor) {
  EXPECT_THAT(Busy().text(kOwnOnly), Not(HasSubstr("carat_kv_bytes")));
  Busy busy;
  busy.runner.pages = {100, 40};
  busy.runner.held_pages = {30, 10};
  busy.runner.free_pages = {50, 25};
  busy.runner.global_page_bytes = 1000;
  busy.runner.sliding_page_bytes = 20;
  busy.runner.prefixes = {.marks = 7, .evicted_for = {3, 2}};
  busy.runner.preempted = 4;
  const auto exposition = test::check_exposition(busy.text(kOwnOnly));
  EXPECT_THAT(exposition.problems, testing::IsEmpty());
  EXPECT_EQ(exposition.samples.at("carat_kv_bytes{pool=\"global\",state=\"used\"}"), 30000);
  EXPECT_EQ(exposition.samples.at("carat_kv_bytes{pool=\"global\",state=\"cached\"}"), 20000);
  EXPECT_EQ(exposition.samples.at("carat_kv_bytes{pool=\"global\",state=\"free\"}"), 50000);
  EXPECT_EQ(exposition.samples.at("carat_kv_bytes{pool=\"sliding\",state=\"cached\"}"), 100);
  EXPECT_EQ(exposition.samples.at("carat_prefix_marks"), 7);
  EXPECT_EQ(exposition.samples.at("carat_prefix_evicted_total{pool=\"sliding\"}"), 2);
  EXPECT_EQ(exposition.samples.at("carat_preempted_total"), 4);
}

TEST(MetricsText, SaysWhatHappened) {
  const auto samples = test::check_exposition(Busy().text(kOwnOnly)).samples;
  EXPECT_EQ(
      samples.at("carat_info{version=\"1.2\",model=\"gemma-4-e4b \\\"Q8_0\\\"\",format=\"Q8_0\",executor=\"cuda\"}"),
      1);
  EXPECT_EQ(samples.at("carat_requests_total{api=\"openai\",route=\"/v1/chat/completions\",status=\"200\"}"), 1);
  EXPECT_EQ(samples.at("carat_requests_cancelled_total{phase=\"queued\"}"), 1);
  EXPECT_EQ(samples.at("carat_answers_total{ending=\"cancelled\"}"), 1);
  EXPECT_EQ(samples.at("carat_prefix_tokens_total{result=\"reused\"}"), 60);
  EXPECT_EQ(samples.at("carat_prefix_tokens_total{result=\"recomputed\"}"), 20);
  EXPECT_EQ(samples.at("carat_prefix_tokens_total{result=\"new\"}"), 20);
  EXPECT_EQ(samples.at("carat_prefix_lost_total{reason=\"template\"}"), 20);
  EXPECT_EQ(samples.at("carat_thought_tokens_total"), 1);
  EXPECT_EQ(samples.at("carat_bad_tool_calls_total"), 1);
  EXPECT_EQ(samples.at("carat_state{state=\"ready\"}"), 1);
  EXPECT_EQ(samples.at("carat_pass_rows_bucket{mix=\"mixed\",le=\"8192\"}"), 0);
  EXPECT_EQ(samples.at("carat_pass_rows_bucket{mix=\"mixed\",le=\"+Inf\"}"), 1);
  EXPECT_EQ(samples.at("carat_pass_seconds_bucket{mix=\"decode\",le=\"0.005\"}"), 1);
  EXPECT_EQ(samples.at("carat_pass_seconds_count{mix=\"decode\"}"), 2);
  EXPECT_EQ(samples.at("carat_inter_token_seconds_bucket{le=\"0.005\"}"), 1);
  EXPECT_EQ(samples.at("carat_inter_token_seconds_bucket{le=\"0.003\"}"), 0);
  EXPECT_EQ(samples.at("carat_grammar_mask_seconds_total"), 0.75);
  EXPECT_EQ(samples.at("process_open_fds"), 12);
}

TEST(MetricsText, VllmsHistogramsHaveVllmsBuckets) {
  const std::string text = Busy().text(MetricsCompat{});
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:inter_token_latency_seconds histogram\n"
                              "vllm:inter_token_latency_seconds_bucket{model_name=\"gemma-4-e4b \\\"Q8_0\\\"\","
                              "engine=\"0\",le=\"0.01\"} 1\n"));
  const auto samples = test::check_exposition(text).samples;
  const auto sample = [&](std::string_view name, std::string_view more) {
    return samples.at(fmt::format("vllm:{}{{model_name=\"gemma-4-e4b \\\"Q8_0\\\"\",engine=\"0\"{}}}", name, more));
  };
  EXPECT_EQ(sample("e2e_request_latency_seconds_bucket", ",le=\"0.3\""), 0);
  EXPECT_EQ(sample("e2e_request_latency_seconds_bucket", ",le=\"0.5\""), 1);
  EXPECT_EQ(sample("e2e_request_latency_seconds_bucket", ",le=\"1920\""), 1);
  EXPECT_EQ(sample("e2e_request_latency_seconds_bucket", ",le=\"7680\""), 2);
  EXPECT_EQ(sample("request_prompt_tokens_bucket", ",le=\"2000\""), 2);
  EXPECT_EQ(samples.count("vllm:request_prompt_tokens_bucket{model_name=\"gemma-4-e4b \\\"Q8_0\\\"\",engine=\"0\","
                          "le=\"5000\"}"),
            0u)
      << "the context ends before";
  EXPECT_EQ(sample("iteration_tokens_total_bucket", ",le=\"8\""), 2);
  EXPECT_EQ(sample("iteration_tokens_total_count", ""), 4);
  EXPECT_EQ(sample("request_success_total", ",finished_reason=\"abort\""), 1);
  EXPECT_EQ(sample("prompt_tokens_total", ""), 100);
  EXPECT_EQ(sample("time_to_first_token_seconds_bucket", ",le=\"0.04\""), 1);
}

TEST(MetricsText, ShowsOnlyTheNamesThatAreWanted) {
  const Busy busy;
  EXPECT_THAT(busy.text(kOwnOnly), Not(HasSubstr(":num_")));
  EXPECT_THAT(busy.text(kOwnOnly), Not(HasSubstr("llamacpp:")));
  EXPECT_THAT(busy.text({}), Not(HasSubstr("llamacpp:")));
  EXPECT_THAT(busy.text(kAll), HasSubstr("llamacpp:tokens_predicted_total 3\n"));
}

TEST(MetricsCompat, IsReadFromItsFlag) {
  EXPECT_FALSE(parse_metrics_compat("none").vllm);
  EXPECT_TRUE(parse_metrics_compat("vllm").vllm);
  EXPECT_FALSE(parse_metrics_compat("vllm").llamacpp);
  EXPECT_TRUE(parse_metrics_compat("llamacpp,vllm").vllm);
  EXPECT_TRUE(parse_metrics_compat("llamacpp,vllm").llamacpp);
  for (const char* wrong : {"", "vLLM", "vllm,", "none,vllm", "sglang"}) {
    try {
      parse_metrics_compat(wrong);
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
      EXPECT_THAT(error.what(), HasSubstr("--metrics-compat"));
    }
  }
}

// Prometheus's own checker, where it is installed.
TEST(MetricsText, PromtoolFindsNothingInCaratsPart) {
  if (std::system("promtool --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "skipped: promtool is not installed";
  FILE* pipe = popen("promtool check metrics 1>&2", "w");
  ASSERT_NE(pipe, nullptr);
  const std::string text = Busy().text(kOwnOnly);
  EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), pipe), text.size());
  EXPECT_EQ(pclose(pipe), 0);
}

}  // namespace
}  // namespace carat::server
