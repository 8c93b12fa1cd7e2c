#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "support/executor_runs.h"
#include "support/references.h"

namespace carat::test {

// How close an executor comes to the references: over all positions, how often the best token is the same and the
// Kullback-Leibler divergence over the reference's top tokens (both sides normalised over these).
struct ReferenceFigures {
  size_t positions = 0, top1 = 0;
  std::vector<double> divergences;

  double agreement() const { return static_cast<double>(top1) / static_cast<double>(positions); }
  double mean_divergence() const {
    double sum = 0.0;
    for (const double d : divergences) sum += d;
    return sum / static_cast<double>(divergences.size());
  }
  double median_divergence() const {
    std::vector<double> sorted = divergences;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

inline double top_divergence(const float* reference, const uint16_t* ids, const std::vector<float>& logits) {
  double reference_total = 0.0, total = 0.0;
  for (size_t k = 0; k < Reference::kTop; ++k) {
    reference_total += std::exp(double{reference[k]} - reference[0]);
    total += std::exp(double{logits[ids[k]]} - logits[ids[0]]);
  }
  double sum = 0.0;
  for (size_t k = 0; k < Reference::kTop; ++k) {
    const double log_p = double{reference[k]} - reference[0] - std::log(reference_total);
    const double log_q = double{logits[ids[k]]} - logits[ids[0]] - std::log(total);
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum;
}

// Feeds each prompt of at least `shortest` and less than `longest` tokens in chunks and prints the figures.
inline ReferenceFigures measure_references(exec::Executor& executor, const std::vector<Reference>& references,
                                           uint32_t chunk, size_t shortest, size_t longest, const std::string& what) {
  ReferenceFigures figures;
  for (const Reference& reference : references) {
    if (reference.tokens.size() < shortest || reference.tokens.size() >= longest) continue;
    executor.truncate(0, 0);
    const Logits logits = feed(executor, 0, reference.tokens, chunk, reference.first);
    for (size_t p = 0; p < logits.size(); ++p) {
      const uint16_t* ids = &reference.top_ids[p * Reference::kTop];
      const auto best = std::max_element(logits[p].begin(), logits[p].end()) - logits[p].begin();
      figures.top1 += best == ids[0];
      figures.divergences.push_back(top_divergence(&reference.top_logits[p * Reference::kTop], ids, logits[p]));
      ++figures.positions;
    }
  }
  std::printf("%s, prompts of %zu to %zu tokens: %zu positions, top-1 %.4f, mean KL %.2e, median %.2e\n", what.c_str(),
              shortest, longest, figures.positions, figures.agreement(), figures.mean_divergence(),
              figures.median_divergence());
  return figures;
}

}  // namespace carat::test
