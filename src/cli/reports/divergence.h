#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace carat::cli {

// Minus the log of the probability that softmax(logits) gives `token`, in nats.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

// KL(softmax(base) || softmax(other)) in nats; both [V].
double kl_divergence(std::span<const float> base, std::span<const float> other);

// The token with the largest logit; the lowest id among equals.
int32_t best_token(std::span<const float> logits);

struct Summary {
  double mean = 0.0;
  double standard_error = 0.0;  // of the mean
  double median = 0.0;
  double p99 = 0.0;
  double largest = 0.0;
};
Summary summarise(std::vector<double> values);

}  // namespace carat::cli
