#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <array>

namespace carat::engine {

ChoiceLogprobs logprobs_of(exec::Executor& executor, uint32_t output, text::TokenId chosen, uint32_t alternatives) {
  const double log_sum = executor.log_sum_exp(output);
  const auto logprob = [log_sum](float logit) { return static_cast<float>(logit - log_sum); };
  std::vector<exec::Candidate> best;
  executor.best(output, alternatives, best);
  ChoiceLogprobs result;
  result.top.reserve(best.size());
  for (const exec::Candidate& candidate : best) result.top.push_back({candidate.token, logprob(candidate.logit)});
  const auto found = std::find_if(result.top.begin(), result.top.end(),
                                  [chosen](const TokenLogprob& entry) { return entry.token == chosen; });
  if (found != result.top.end()) {
    result.chosen = found->logprob;
  } else {
    std::vector<float> logits;
    executor.logits_of(output, std::array{chosen}, logits);
    result.chosen = logprob(logits.front());
  }
  return result;
}

}  // namespace carat::engine
