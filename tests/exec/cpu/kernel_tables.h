#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "exec/cpu/simd/instruction_set.h"

namespace carat::exec::cpu {

// Names the parameter of a test that runs on every kernel table this machine can use.
inline std::string table_name(const testing::TestParamInfo<const KernelTable*>& parameter) {
  return parameter.param->name;
}

// The quant of QuantisedRows::wide that QuantisedRows::narrow would have at `at`.
inline int wide_quant(const KernelTable& table, const uint8_t* wide, size_t at) {
  const uint8_t* eight = wide + at / 4 * 8;
  if (table.int16_layout == Int16Layout::kPairs) {
    const size_t order[] = {0, 2, 1, 3};
    int16_t quant;
    std::memcpy(&quant, eight + 2 * order[at % 4], 2);
    return quant;
  }
  return 128 * static_cast<int8_t>(eight[at % 4]) + static_cast<int8_t>(eight[4 + at % 4]);
}

inline std::vector<const KernelTable*> tables() { return {usable_kernels().begin(), usable_kernels().end()}; }

}  // namespace carat::exec::cpu
