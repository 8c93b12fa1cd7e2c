#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/sampling_options.h"

namespace carat::cli {

// What is not given comes from the model file.
struct SamplingFlags {
  std::optional<uint64_t> seed;
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<int64_t> repeat_last_n;  // -1: the whole context
  std::vector<std::string> logit_bias;

  void add_to(CLI::App& command);
  // Without -s a seed is taken from the system's random numbers. Throws kBadArgument.
  engine::SamplingOptions options(const model::Config& config) const;
};

// "TOKEN+BIAS", "TOKEN-BIAS" or "TOKEN=BIAS" with a token id and a number, or "TOKEN=-inf" to ban it.
engine::LogitBias parse_logit_bias(const std::string& text);

}  // namespace carat::cli
