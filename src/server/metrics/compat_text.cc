#include "server/metrics/compat_text.h"

#include <algorithm>
#include <array>
#include <span>

#include "server/metrics/exposition.h"

namespace carat::server {

namespace {

// vLLM's buckets. Each is one of carat's for the same quantity, except those of passes beyond the last that the runner
// counts.
constexpr std::array kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1,  .25,  .5,   .75,
                                    1.,   2.5,  5.,  7.5, 10., 20., 40., 80., 160., 640., 2560.};
constexpr std::array kGap = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1., 2.5, 5., 7.5, 10., 20., 40., 80.};
constexpr std::array kDuration = {.3,  .5,  .8,  1.,  1.5,  2.,   2.5,  5.,   10.,   15.,  20.,
                                  30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.};
constexpr std::array kPassTokens = {1., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096., 8192.};

// Lengths in tokens are shown up to the context.
std::span<const double> token_bounds(const ServerFacts& facts) {
  const auto end = std::upper_bound(bounds::kTokens.begin(), bounds::kTokens.end(), static_cast<double>(facts.context));
  return std::span(bounds::kTokens).first(static_cast<size_t>(end - bounds::kTokens.begin()));
}

HistogramCounts pass_tokens(const engine::RunnerTotals& totals) {
  using engine::PassCounts;
  HistogramCounts all{PassCounts::kRowsBounds, std::vector<uint64_t>(PassCounts::kRowsBounds.size() + 1), 0.0};
  for (const PassCounts& passes : totals.passes) {
    for (size_t i = 0; i < all.counts.size(); ++i) all.counts[i] += passes.by_rows[i];
    all.sum += static_cast<double>(passes.rows);
  }
  return all.regrouped(kPassTokens);
}

void write_vllm_answers(Exposition& text, const ServerFigures& server) {
  const auto count = [&](AnswerOutcome outcome) { return server.answers[static_cast<size_t>(outcome)]; };
  text.counter("request_success_total", "Answers that ended, by vLLM's reasons.")
      .sample(count(AnswerOutcome::kStop) + count(AnswerOutcome::kToolCalls), {{"finished_reason", "stop"}})
      .sample(count(AnswerOutcome::kLength) + count(AnswerOutcome::kContextFull), {{"finished_reason", "length"}})
      .sample(count(AnswerOutcome::kCancelled), {{"finished_reason", "abort"}})
      .sample(count(AnswerOutcome::kFailed), {{"finished_reason", "error"}})
      .sample(count(AnswerOutcome::kLoop), {{"finished_reason", "repetition"}});
}

void write_vllm_histograms(Exposition& text, const ServerFigures& server, std::span<const double> tokens) {
  const auto write = [&](std::string_view name, std::string_view help, const HistogramCounts& counts,
                         std::span<const double> bounds) {
    text.histogram(name, help).samples(counts.regrouped(bounds));
  };
  write("request_prompt_tokens", "Tokens of a prompt.", server.request_prompt_tokens, tokens);
  write("request_generation_tokens", "Tokens of an answer.", server.answer_tokens, tokens);
  write("request_params_max_tokens", "The limit that a request set.", server.request_max_tokens, tokens);
  write("request_max_num_generation_tokens", "Tokens of the longest answer of a request.", server.longest_answer_tokens,
        tokens);
  write("request_prefill_kv_computed_tokens", "Tokens of a prompt that were run.", server.request_computed_tokens,
        tokens);
  write("request_params_n", "Answers that a request asked for.", server.request_choices, bounds::kChoices);
  write("time_to_first_token_seconds", "From the arrival of a request to its first token.", server.first_token,
        kFirstToken);
  write("inter_token_latency_seconds", "Between two moments at which tokens came.", server.gap, kGap);
  write("request_time_per_output_token_seconds", "Time per token after the first.", server.seconds_per_token, kGap);
  write("e2e_request_latency_seconds", "From arrival to the end.", server.total, kDuration);
  write("request_queue_time_seconds", "Until a request got its place.", server.queue, kDuration);
  write("request_inference_time_seconds", "Of all passes.", server.inference, kDuration);
  write("request_prefill_time_seconds", "Of the passes that read a prompt.", server.prefill, kDuration);
  write("request_decode_time_seconds", "Of the passes after the first token.", server.decode, kDuration);
}

void write_vllm_engine(Exposition& text, const engine::RunnerSnapshot& runner) {
  const engine::RunnerTotals& totals = runner.totals;
  text.gauge("kv_cache_usage_perc", "Used part of the cache, 0 to 1.").sample(cache_usage(runner));
  text.gauge("gpu_cache_usage_perc", "The older name of kv_cache_usage_perc.").sample(cache_usage(runner));
  text.counter("prompt_tokens_total", "Tokens of prompts, cached ones included.")
      .sample(totals.prompt_tokens_run + totals.prompt_tokens_reused);
  text.counter("prompt_tokens_by_source_total", "Tokens of prompts, by where they came from.")
      .sample(totals.prompt_tokens_run, {{"source", "local_compute"}})
      .sample(totals.prompt_tokens_reused, {{"source", "local_cache_hit"}});
  text.counter("prompt_tokens_cached_total", "Tokens of prompts that were in the cache.")
      .sample(totals.prompt_tokens_reused);
  text.counter("generation_tokens_total", "Tokens that were chosen.").sample(totals.generated_tokens);
  text.histogram("iteration_tokens_total", "Tokens of a pass.").samples(pass_tokens(totals));
  text.counter("spec_decode_num_draft_tokens_total", "Tokens that were drafted.").sample(totals.drafted_tokens);
  text.counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that were chosen.")
      .sample(totals.accepted_tokens);
}

}  // namespace

double cache_usage(const engine::RunnerSnapshot& runner) {
  if (runner.cache_capacity == 0) return 0.0;
  return std::min(1.0, static_cast<double>(runner.cached_tokens) / static_cast<double>(runner.cache_capacity));
}

void append_vllm_metrics(const MetricsSources& sources, std::string& out) {
  if (!sources.facts || !sources.runner) return;
  const ServerFigures& server = sources.server;
  const uint64_t preparing = server.staged[static_cast<size_t>(ServiceStage::kPreparing)];
  Exposition text(out, "vllm:", {{"model_name", sources.facts->model_id}, {"engine", "0"}});
  text.gauge("num_requests_running", "Sequences in the executor.").sample(sources.runner->running);
  text.gauge("num_requests_waiting", "Requests that wait.").sample(sources.runner->waiting + preparing);
  text.gauge("num_requests_waiting_by_reason", "Requests that wait, for a place or to be prepared.")
      .sample(sources.runner->waiting, {{"reason", "capacity"}})
      .sample(preparing, {{"reason", "deferred"}});
  write_vllm_engine(text, *sources.runner);
  for (const std::string_view prefix : {"", "gpu_"}) {
    text.counter(fmt::format("{}prefix_cache_queries_total", prefix), "Tokens that were looked up in the cache.")
        .sample(server.prompt_tokens);
    text.counter(fmt::format("{}prefix_cache_hits_total", prefix), "Of these, tokens that were found.")
        .sample(server.cached_tokens);
  }
  write_vllm_answers(text, server);
  write_vllm_histograms(text, server, token_bounds(*sources.facts));
}

void append_llamacpp_metrics(const MetricsSources& sources, std::string& out) {
  if (!sources.runner) return;
  const engine::RunnerTotals& totals = sources.runner->totals;
  const ServerFigures& server = sources.server;
  uint64_t passes = 0;
  for (const engine::PassCounts& counts : totals.passes) passes += counts.passes;
  Exposition text(out, "llamacpp:");
  text.counter("prompt_tokens_total", "Tokens of prompts that were run.").sample(totals.prompt_tokens_run);
  text.counter("prompt_seconds_total", "Of the passes that read prompts, for each request.").sample(server.prefill.sum);
  text.gauge("prompt_tokens_seconds", "Tokens of prompts per second, lately.")
      .sample(sources.runner->prompt_tokens_per_second);
  text.counter("tokens_predicted_total", "Tokens that were chosen.").sample(totals.generated_tokens);
  text.counter("tokens_predicted_seconds_total", "Of the passes after the first token, for each answer.")
      .sample(server.decode.sum);
  text.gauge("predicted_tokens_seconds", "Chosen tokens per second, lately.")
      .sample(sources.runner->generated_tokens_per_second);
  text.gauge("requests_processing", "Sequences in the executor.").sample(sources.runner->running);
  text.gauge("requests_deferred", "Requests that wait.")
      .sample(sources.runner->waiting + server.staged[static_cast<size_t>(ServiceStage::kPreparing)]);
  text.counter("n_tokens_max", "Most tokens that a prompt and its answer had.").sample(server.longest_context);
  text.counter("n_decode_total", "Passes.").sample(passes);
  text.counter("spec_decode_num_draft_tokens_total", "Tokens that were drafted.").sample(totals.drafted_tokens);
  text.counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that were chosen.")
      .sample(totals.accepted_tokens);
}

}  // namespace carat::server
