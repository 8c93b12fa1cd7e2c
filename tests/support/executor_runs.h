#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "support/random.h"

namespace carat::test {

using Logits = std::vector<std::vector<float>>;  // [rows that wanted them][V]

inline std::vector<int32_t> random_tokens(uint32_t vocabulary, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(vocabulary));
  return tokens;
}

// The logits of the last pass, copied.
inline Logits copy_outputs(exec::Executor& executor) {
  Logits logits;
  for (uint32_t output = 0; output < executor.outputs(); ++output) {
    const auto values = executor.logits(output);
    logits.emplace_back(values.begin(), values.end());
  }
  return logits;
}

// Appends tokens to a sequence in passes of at most `chunk` rows; the tokens from index `wanted_from` on give logits.
inline Logits feed(exec::Executor& executor, uint32_t sequence, std::span<const int32_t> tokens, uint32_t chunk,
                   size_t wanted_from = 0) {
  Logits logits;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    std::vector<exec::Row> rows;
    const uint32_t length = executor.length(sequence);
    for (size_t i = begin; i < tokens.size() && i < begin + chunk; ++i) {
      rows.push_back({tokens[i], length + static_cast<uint32_t>(i - begin), sequence, i >= wanted_from});
    }
    executor.forward(rows);
    for (auto& row : copy_outputs(executor)) logits.push_back(std::move(row));
  }
  return logits;
}

}  // namespace carat::test
