#include "serve/figures.h"

#include <algorithm>
#include <cmath>

namespace carat::serve_bench {

namespace {

constexpr double kMilliseconds = 1000.0;

double per_token(const RequestResult& request) {
  if (request.output_tokens < 2) return 0.0;
  return (request.latency - request.first_token) / (request.output_tokens - 1) * kMilliseconds;
}

bool is_good(const RequestResult& request, const std::map<std::string, double>& limits) {
  const auto holds = [&](const char* name, double value) {
    const auto limit = limits.find(name);
    return limit == limits.end() || value <= limit->second;
  };
  return holds("ttft", request.first_token * kMilliseconds) && holds("tpot", per_token(request)) &&
         holds("e2el", request.latency * kMilliseconds);
}

// Most tokens that came in one second; those of a request are spread evenly over its chunks.
double most_output_per_second(const LoadResult& load) {
  std::vector<double> tokens(static_cast<size_t>(load.seconds) + 2);
  for (const RequestResult& request : load.requests) {
    if (!request.is_complete) continue;
    const double each = double(request.output_tokens) / static_cast<double>(request.gaps.size() + 1);
    double time = request.start + request.first_token;
    for (size_t i = 0; i <= request.gaps.size(); ++i) {
      if (i > 0) time += request.gaps[i - 1];
      tokens[std::min(static_cast<size_t>(std::max(0.0, time)), tokens.size() - 1)] += each;
    }
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

std::optional<Figures::Intrusion> intrusion_of(const LoadResult& load, const std::vector<double>& percentiles) {
  const auto intruder = std::find_if(load.requests.begin(), load.requests.end(),
                                     [](const RequestResult& r) { return r.is_intruder && r.is_complete; });
  if (intruder == load.requests.end()) return std::nullopt;
  std::vector<double> before, during;
  for (const RequestResult& request : load.requests) {
    if (request.is_intruder || !request.is_complete) continue;
    double time = request.start + request.first_token;
    for (const double gap : request.gaps) {
      time += gap;  // when it ended
      if (time <= intruder->start) before.push_back(gap * kMilliseconds);
      if (time > intruder->start && time - gap < intruder->start + intruder->first_token) {
        during.push_back(gap * kMilliseconds);
      }
    }
  }
  return Figures::Intrusion{.first_token = intruder->first_token * kMilliseconds,
                            .gap_before = statistics_of(std::move(before), percentiles),
                            .gap_during = statistics_of(std::move(during), percentiles)};
}

void add_rates(const LoadResult& load, Figures& figures) {
  const double seconds = std::max(load.seconds, 1e-9);
  figures.request_throughput = double(figures.completed) / seconds;
  figures.output_throughput = double(figures.output_tokens) / seconds;
  figures.total_throughput = double(figures.input_tokens + figures.output_tokens) / seconds;
  if (figures.goodput) *figures.goodput /= seconds;
}

}  // namespace

Figures figures_of(const LoadResult& load, const ReportOptions& options) {
  Figures figures;
  std::vector<double> first_token, tpot, gap, latency, first_turn, later_turns;
  if (!options.goodput.empty()) figures.goodput = 0.0;
  for (const RequestResult& request : load.requests) {
    if (!request.is_complete) {
      ++figures.failed;
      Figures::Failures& failures = figures.errors[request.error_kind];
      if (failures.count++ == 0) failures.example = request.error;
      continue;
    }
    ++figures.completed;
    figures.input_tokens += request.prompt_tokens;
    figures.cached_tokens += request.cached_tokens;
    figures.output_tokens += request.output_tokens;
    figures.without_usage += request.has_usage ? 0 : 1;
    first_token.push_back(request.first_token * kMilliseconds);
    (request.turn == 0 ? first_turn : later_turns).push_back(first_token.back());
    latency.push_back(request.latency * kMilliseconds);
    if (request.output_tokens > 1) tpot.push_back(per_token(request));
    for (const double seconds : request.gaps) gap.push_back(seconds * kMilliseconds);
    if (figures.goodput && is_good(request, options.goodput)) *figures.goodput += 1.0;
  }
  figures.seconds = load.seconds;
  figures.cpu_seconds = load.cpu_seconds;
  figures.most_at_once = load.most_at_once;
  figures.most_output_per_second = most_output_per_second(load);
  add_rates(load, figures);
  figures.first_token = statistics_of(std::move(first_token), options.percentiles);
  figures.per_token = statistics_of(std::move(tpot), options.percentiles);
  figures.gap = statistics_of(std::move(gap), options.percentiles);
  figures.latency = statistics_of(std::move(latency), options.percentiles);
  if (!later_turns.empty()) {
    figures.first_turn = statistics_of(std::move(first_turn), options.percentiles);
    figures.later_turns = statistics_of(std::move(later_turns), options.percentiles);
  }
  figures.intrusion = intrusion_of(load, options.percentiles);
  return figures;
}

}  // namespace carat::serve_bench
