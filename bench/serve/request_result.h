#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carat::serve_bench {

// What became of one request. Times are in seconds; `start` counts from the beginning of the run.
struct RequestResult {
  uint32_t session = 0, turn = 0;
  bool is_intruder = false;

  bool is_complete = false;
  std::string error_kind = {};  // a few words: "HTTP 429", "connection", "timeout", ...
  std::string error = {};

  double start = 0.0;
  double first_token = 0.0;       // from start, as the next one
  double latency = 0.0;           // until the last chunk of the answer
  std::vector<double> gaps = {};  // between chunks with text
  uint32_t planned_input = 0;
  uint32_t prompt_tokens = 0;  // as the server says, or planned
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;  // as the server says, or chunks with text
  bool has_usage = false;
  std::string answer = {};  // the inside of a JSON string; kept where it is needed
};

// Of a whole run.
struct LoadResult {
  std::vector<RequestResult> requests = {};  // in the order of their start
  double seconds = 0.0;
  uint32_t most_at_once = 0;
  double cpu_seconds = 0.0;  // that this program took
};

}  // namespace carat::serve_bench
