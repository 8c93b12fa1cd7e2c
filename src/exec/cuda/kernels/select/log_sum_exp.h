#pragma once

#include <cstdint>
#include <span>

namespace carat::cuda {

struct LaunchConfig;

inline constexpr uint32_t kLogSumParts = 64;  // a row is divided into, whatever its length

// What a block says about its part of a row.
struct LogSumPart {
  double sum;     // of exp(logit - largest)
  float largest;  // minus infinity where the part has no logit above it; sum is 0 then
  uint32_t unused;
};

// The parts of the log-sum-exp of each row of logits [rows, V]; parts: [rows, kLogSumParts]. What a row gets depends on
// nothing but the row. The exponentials of differences are fp32, their sum is double: a difference of 16 is rounded by
// at most 5e-7 and an exponential by 2.4e-7 of its value, so that the logarithm of the sum is off by less than 1e-6.
void log_sum_parts(const float* logits, uint32_t rows, uint32_t V, LogSumPart* parts, const LaunchConfig& launch);

// log(sum(exp(logit))) of a row; minus infinity when all its logits are, and not a number when one of them is.
double join_log_sums(std::span<const LogSumPart> parts);

}  // namespace carat::cuda
