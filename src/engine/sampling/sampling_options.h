#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

struct LogitBias {
  text::TokenId token;
  float bias;  // added to the logit; minus infinity bans the token
};

// How the next token is chosen from the logits. The steps are applied in the order of the fields here; sampler.h has
// the exact meaning of each.
struct SamplingOptions {
  std::vector<LogitBias> bias;
  float repeat_penalty = 1.0f;  // > 0; 1 is neutral
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t repeat_last_n = 64;  // how many of the latest tokens, prompt included, the penalties look at
  float temperature = 1.0f;     // 0 or less: always the most probable token
  uint32_t top_k = 64;          // 0: the whole vocabulary
  float top_p = 0.95f;          // in (0, 1]; 1 is neutral
  float min_p = 0.0f;           // in [0, 1]; 0 is neutral
  uint64_t seed = 0;

  // What the file recommends, or the family's defaults.
  static SamplingOptions recommended(const model::Config& config);

  // Throws kBadArgument naming the option that is out of its range.
  void check(uint32_t vocabulary) const;
};

}  // namespace carat::engine
