#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/options.h"

namespace carat::serve_bench {

// One request: what is new in it, and how much answer is wanted.
struct Turn {
  std::string content = {};    // JSON: the inside of a string, or of a list of token ids
  std::string messages = {};   // of a file: a whole list of messages, instead of `content`
  uint32_t input_tokens = 0;   // of `content`, as planned
  uint32_t output_tokens = 0;  // most tokens of the answer
};

// Requests of which each begins with the one before and the answer to it.
struct Session {
  std::string name = {};    // unlike that of all others with the same seed
  std::string system = {};  // the inside of a JSON string; empty: none
  uint32_t system_tokens = 0;
  std::vector<Turn> turns = {};
  double start_seconds = 0.0;  // not sent before
  bool is_intruder = false;
};

struct Workload {
  std::vector<Session> sessions;
  bool in_rounds = false;  // a session's next turn comes after the turns of all others
  bool has_token_ids = false;

  uint64_t requests() const;
};

// The same for the same options. `vocabulary` is the number of tokens that the server knows, needed for token ids.
// Throws carat::Error for a file that cannot be read.
Workload make_workload(const DatasetOptions& options, uint32_t vocabulary);
// Spreads the starts of the sessions over time: as vllm bench serve does it.
void set_arrivals(const LoadOptions& load, uint64_t seed, Workload& workload);

}  // namespace carat::serve_bench
