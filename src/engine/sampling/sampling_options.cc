#include "engine/sampling/sampling_options.h"

#include <cmath>

#include "base/error.h"

namespace carat::engine {

SamplingOptions SamplingOptions::recommended(const model::Config& config) {
  SamplingOptions options;
  options.repeat_penalty = config.sampling.repeat_penalty;
  options.repeat_last_n = config.sampling.repeat_last_n;
  options.temperature = config.sampling.temperature;
  options.top_k = config.sampling.top_k;
  options.top_p = config.sampling.top_p;
  options.min_p = config.sampling.min_p;
  return options;
}

void SamplingOptions::check(uint32_t vocabulary) const {
  const auto refuse = [](const char* name, float value, const char* allowed) {
    fail(ErrorCode::kBadArgument, "{} is {}; it must be {}", name, value, allowed);
  };
  if (!std::isfinite(temperature))
    refuse("temperature", temperature, "a finite number (0 or less: always the best token)");
  if (!(top_p > 0.0f && top_p <= 1.0f)) refuse("top-p", top_p, "above 0 and at most 1");
  if (!(min_p >= 0.0f && min_p <= 1.0f)) refuse("min-p", min_p, "between 0 and 1");
  if (!(std::isfinite(repeat_penalty) && repeat_penalty > 0.0f)) {
    refuse("repeat-penalty", repeat_penalty, "a finite number above 0 (1 is neutral)");
  }
  if (!std::isfinite(presence_penalty)) refuse("presence-penalty", presence_penalty, "a finite number");
  if (!std::isfinite(frequency_penalty)) refuse("frequency-penalty", frequency_penalty, "a finite number");
  for (const LogitBias& entry : bias) {
    if (entry.token < 0 || static_cast<uint32_t>(entry.token) >= vocabulary) {
      fail(ErrorCode::kBadArgument, "logit-bias names token {} but the vocabulary has {} tokens (0 to {})", entry.token,
           vocabulary, vocabulary - 1);
    }
    if (std::isnan(entry.bias) || entry.bias == INFINITY) {
      refuse("logit-bias", entry.bias, "a finite number, or -inf to ban the token");
    }
  }
}

}  // namespace carat::engine
