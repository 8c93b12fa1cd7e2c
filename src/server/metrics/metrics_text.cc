#include "server/metrics/metrics_text.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "server/metrics/compat_text.h"
#include "server/metrics/exposition.h"

namespace carat::server {

namespace {

constexpr std::array<std::string_view, kServerStates> kStateNames = {"loading", "ready", "draining"};
constexpr std::array<std::string_view, kAnswerOutcomes> kOutcomeNames = {
    "stop", "length", "context_full", "tool_calls", "loop", "cancelled", "failed"};
constexpr std::array<std::string_view, kRequestPhases> kPhaseNames = {"queued", "prefill", "decode"};
constexpr std::array<std::string_view, engine::kPassMixes> kMixNames = {"decode", "prompt", "mixed"};

std::string status_text(unsigned status) { return fmt::format("{}", status); }

void write_server(Exposition& text, const MetricsSources& sources) {
  const ServerFigures& server = sources.server;
  text.gauge("info", "Always 1; the labels say what is running.")
      .sample(1u, {{"version", sources.version},
                   {"model", sources.facts ? std::string_view(sources.facts->model_id) : ""},
                   {"format", sources.facts ? std::string_view(sources.facts->format) : ""},
                   {"executor", sources.executor}});
  text.gauge("state", "1 for the state that the server is in.");
  for (size_t i = 0; i < kServerStates; ++i) {
    text.sample(static_cast<size_t>(server.state) == i ? 1u : 0u, {{"state", kStateNames[i]}});
  }
  if (server.startup_seconds) {
    text.gauge("startup_seconds", "Time from the start of the server until it was ready.")
        .sample(*server.startup_seconds);
  }
  text.counter("requests_total", "Requests that were answered.");
  for (const auto& [api, route, status, count] : server.requests) {
    text.sample(count, {{"api", api}, {"route", route}, {"status", status_text(status)}});
  }
  text.gauge("http_connections", "Open connections.").sample(sources.http.connections);
  text.counter("http_connections_total", "Connections that were accepted.").sample(sources.http.accepted);
  text.counter("http_connections_refused_total", "Connections beyond the limit.").sample(sources.http.refused);
}

void write_requests(Exposition& text, const MetricsSources& sources) {
  const ServerFigures& server = sources.server;
  const uint64_t preparing = server.staged[static_cast<size_t>(ServiceStage::kPreparing)];
  text.gauge("requests_running", "Sequences that have their place in the executor.")
      .sample(sources.runner ? sources.runner->running : 0u);
  text.gauge("requests_waiting", "Requests that are queued or being prepared.")
      .sample(preparing + (sources.runner ? sources.runner->waiting : 0u));
  text.gauge("requests_preparing", "Of those waiting: requests whose prompts are being made.").sample(preparing);
  text.gauge("requests_paused", "Requests that are held up because their client reads slowly.")
      .sample(server.staged[static_cast<size_t>(ServiceStage::kPaused)]);
  text.counter("answers_total", "Answers by the way they ended; a request may have several.");
  for (size_t i = 0; i < kAnswerOutcomes; ++i) text.sample(server.answers[i], {{"ending", kOutcomeNames[i]}});
  text.counter("requests_cancelled_total", "Cancelled requests by what they were doing.");
  for (size_t i = 0; i < kRequestPhases; ++i) text.sample(server.cancelled[i], {{"phase", kPhaseNames[i]}});
  text.counter("thought_tokens_total", "Tokens of thoughts in answers that have ended.").sample(server.thought_tokens);
  text.counter("bad_tool_calls_total", "Calls of tools that could not be understood.").sample(server.bad_tool_calls);
  text.counter("prefix_tokens_total",
               "Tokens of prompts: not run again because they were in the cache, run again although an earlier request "
               "had them, and new ones.")
      .sample(server.cached_tokens, {{"result", "reused"}})
      .sample(server.known_tokens - std::min(server.cached_tokens, server.known_tokens), {{"result", "recomputed"}})
      .sample(
          server.prompt_tokens - std::min(std::max(server.known_tokens, server.cached_tokens), server.prompt_tokens),
          {{"result", "new"}});
  text.counter("prefix_lost_total", "Tokens of prompts that had to be run again, by the reason.");
  for (size_t i = 0; i < kLostReasons; ++i) {
    text.sample(server.lost_tokens[i], {{"reason", lost_reason_name(static_cast<LostReason>(i))}});
  }
}

void write_histograms(Exposition& text, const ServerFigures& server) {
  text.histogram("time_to_first_token_seconds", "From the arrival of a request to its first token.")
      .samples(server.first_token);
  text.histogram("inter_token_seconds", "Between two moments at which tokens came for an answer.").samples(server.gap);
  text.histogram("time_per_output_token_seconds", "Time per token after the first, once for each answer.")
      .samples(server.seconds_per_token);
  text.histogram("request_seconds", "From the arrival of a request to the end of its last answer.")
      .samples(server.total);
  text.histogram("queue_seconds", "Until a request got its place in the executor.").samples(server.queue);
  text.histogram("prefill_seconds", "Of the passes that read a prompt.").samples(server.prefill);
  text.histogram("decode_seconds", "Of the passes after the first token, for each answer.").samples(server.decode);
  text.histogram("inference_seconds", "Of all passes, for each answer.").samples(server.inference);
  text.histogram("request_prompt_tokens", "Tokens of a prompt.").samples(server.request_prompt_tokens);
  text.histogram("request_computed_tokens", "Tokens of a prompt that were run.")
      .samples(server.request_computed_tokens);
  text.histogram("request_max_tokens", "The limit that a request set.").samples(server.request_max_tokens);
  text.histogram("request_choices", "Answers that a request asked for.").samples(server.request_choices);
  text.histogram("answer_tokens", "Tokens of an answer.").samples(server.answer_tokens);
  text.histogram("request_longest_answer_tokens", "Tokens of the longest answer of a request.")
      .samples(server.longest_answer_tokens);
}

template <typename Bounds, typename Counts>
HistogramCounts pass_histogram(const Bounds& bounds, const Counts& counts, double sum) {
  return {bounds, std::vector<uint64_t>(counts.begin(), counts.end()), sum};
}

// Of executors whose caches are pages.
void write_pages(Exposition& text, const engine::RunnerSnapshot& runner) {
  text.gauge("kv_bytes",
             "Memory of the cache by its pools of pages: used by requests that run, kept for later ones, free.");
  for (const model::PageKind kind : model::kPageKinds) {
    const bool is_global = kind == model::PageKind::kGlobal;
    const std::string_view pool = is_global ? "global" : "sliding";
    const uint64_t bytes = is_global ? runner.global_page_bytes : runner.sliding_page_bytes;
    const uint64_t held = runner.held_pages.of(kind), free = runner.free_pages.of(kind);
    text.sample(held * bytes, {{"pool", pool}, {"state", "used"}});
    text.sample((runner.pages.of(kind) - held - free) * bytes, {{"pool", pool}, {"state", "cached"}});
    text.sample(free * bytes, {{"pool", pool}, {"state", "free"}});
  }
  text.gauge("prefix_marks", "Positions of earlier requests that others can go on from.").sample(runner.prefixes.marks);
  text.counter("prefix_evicted_total", "Marks that were given up because pages were needed, by the pool.");
  for (const model::PageKind kind : model::kPageKinds) {
    text.sample(runner.prefixes.evicted_for.of(kind),
                {{"pool", kind == model::PageKind::kGlobal ? "global" : "sliding"}});
  }
  text.counter("preempted_total", "Times a running request gave back its place for want of memory.")
      .sample(runner.preempted);
}

void write_engine(Exposition& text, const engine::RunnerSnapshot& runner) {
  using engine::PassCounts;
  const engine::RunnerTotals& totals = runner.totals;
  text.gauge("engine_lost", "1 when the engine failed and cannot go on.")
      .sample(runner.state == engine::RunnerState::kLost ? 1u : 0u);
  text.counter("prompt_tokens_total", "Tokens of prompts that were run.").sample(totals.prompt_tokens_run);
  text.counter("generated_tokens_total", "Tokens that were chosen.").sample(totals.generated_tokens);
  text.gauge("prompt_tokens_per_second", "Of the last seconds.").sample(runner.prompt_tokens_per_second);
  text.gauge("generated_tokens_per_second", "Of the last seconds.").sample(runner.generated_tokens_per_second);
  text.counter("draft_tokens_total", "Tokens that were drafted, of requests that have ended.")
      .sample(totals.drafted_tokens);
  text.counter("draft_tokens_accepted_total", "Of the drafted tokens, those that were chosen.")
      .sample(totals.accepted_tokens);
  text.counter("grammar_mask_seconds_total", "Time that passes took to find which tokens grammars allow.")
      .sample(totals.mask_seconds);
  text.gauge("kv_cache_tokens", "Tokens whose keys and values are held.").sample(runner.cached_tokens);
  text.gauge("kv_cache_capacity_tokens", "Tokens that the cache has room for.").sample(runner.cache_capacity);
  text.gauge("kv_cache_usage_ratio", "Used part of the cache.").sample(cache_usage(runner));
  if (runner.pages != model::PageCount{}) write_pages(text, runner);
  text.histogram("pass_seconds", "Time of a pass, by what its rows were.");
  for (size_t i = 0; i < engine::kPassMixes; ++i) {
    const PassCounts& passes = totals.passes[i];
    text.samples(pass_histogram(PassCounts::kSecondsBounds, passes.by_seconds, passes.seconds),
                 {{"mix", kMixNames[i]}});
  }
  text.histogram("pass_rows", "Rows of a pass, by what they were.");
  for (size_t i = 0; i < engine::kPassMixes; ++i) {
    const PassCounts& passes = totals.passes[i];
    text.samples(pass_histogram(PassCounts::kRowsBounds, passes.by_rows, static_cast<double>(passes.rows)),
                 {{"mix", kMixNames[i]}});
  }
}

// The names that every client library of Prometheus uses.
void write_process(Exposition& text, const ProcessFigures& process) {
  text.counter("cpu_seconds_total", "User and system time.").sample(process.cpu_seconds);
  text.gauge("start_time_seconds", "When the process was started, Unix time.").sample(process.start_seconds);
  text.gauge("virtual_memory_bytes", "Address space.").sample(process.virtual_bytes);
  text.gauge("resident_memory_bytes", "Memory in use, mapped files included.").sample(process.resident_bytes);
  text.gauge("threads", "Threads.").sample(process.threads);
  text.gauge("open_fds", "Open files and sockets.").sample(process.open_files);
  if (process.most_files) text.gauge("max_fds", "Most files and sockets allowed.").sample(*process.most_files);
}

}  // namespace

MetricsCompat parse_metrics_compat(std::string_view text) {
  MetricsCompat compat{.vllm = false, .llamacpp = false};
  if (text == "none") return compat;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    if (name == "vllm") {
      compat.vllm = true;
    } else if (name == "llamacpp") {
      compat.llamacpp = true;
    } else {
      fail(ErrorCode::kBadArgument, "--metrics-compat: '{}' is not known; use vllm, llamacpp, vllm,llamacpp or none",
           name);
    }
    if (comma == std::string_view::npos) return compat;
    text = text.substr(comma + 1);
  }
}

std::string metrics_text(const MetricsSources& sources, const MetricsCompat& compat) {
  std::string out;
  Exposition own(out, "carat_");
  write_server(own, sources);
  write_requests(own, sources);
  write_histograms(own, sources.server);
  if (sources.runner) write_engine(own, *sources.runner);
  if (sources.process) {
    Exposition process(out, "process_");
    write_process(process, *sources.process);
  }
  if (compat.vllm) append_vllm_metrics(sources, out);
  if (compat.llamacpp) append_llamacpp_metrics(sources, out);
  return out;
}

}  // namespace carat::server
