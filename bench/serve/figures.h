#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "serve/options.h"
#include "serve/request_result.h"
#include "serve/statistics.h"

namespace carat::serve_bench {

// What a run was, in numbers. Times in milliseconds.
struct Figures {
  uint64_t completed = 0, failed = 0;
  struct Failures {
    uint64_t count = 0;
    std::string example;  // what was said the first time
  };
  std::map<std::string, Failures> errors;  // by kind
  double seconds = 0.0;
  uint64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of completed requests
  double request_throughput = 0.0, output_throughput = 0.0, total_throughput = 0.0;
  std::optional<double> goodput;  // requests per second that met every limit
  double most_output_per_second = 0.0;
  uint32_t most_at_once = 0;
  uint64_t without_usage = 0;  // whose tokens were counted by chunks
  double cpu_seconds = 0.0;

  Statistics first_token, per_token, gap, latency;
  // Of runs with conversations, and of those with an intruder.
  std::optional<Statistics> first_turn, later_turns;
  struct Intrusion {
    double first_token = 0.0;           // of the intruder
    Statistics gap_before, gap_during;  // of the others: until it came, and until its first token
  };
  std::optional<Intrusion> intrusion;
};

Figures figures_of(const LoadResult& load, const ReportOptions& options);

}  // namespace carat::serve_bench
