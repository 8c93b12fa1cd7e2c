#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::test {

// ||a - b|| / ||b|| over all positions.
inline double relative_error(const Logits& a, const Logits& b) {
  double difference = 0.0, size = 0.0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t p = 0; p < b.size(); ++p) {
    for (size_t v = 0; v < b[p].size(); ++v) {
      difference += std::pow(double{a[p][v]} - b[p][v], 2);
      size += std::pow(double{b[p][v]}, 2);
    }
  }
  return std::sqrt(difference / size);
}

// What rounding to bf16 may change in a prompt pass of the tiny models, whose short sums even out little of it. In a
// mixture of experts it can flip the choice of an expert, which moves a few rows by much more.
inline double prompt_tolerance(TinyKind kind) { return kind == TinyKind::k26B ? 0.2 : 0.06; }
// Decode passes round activations to 15 bits and the cache to fp16.
inline double gemv_tolerance(TinyKind kind) { return kind == TinyKind::k26B ? 0.1 : 0.004; }
// Batched passes round them to fp16 with one scale for a row.
inline double skinny_tolerance(TinyKind kind) { return kind == TinyKind::k26B ? 0.1 : 0.01; }

}  // namespace carat::test
