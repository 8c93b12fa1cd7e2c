#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/cpu/instruction_set.h"

namespace carat::exec::cpu {

// Names the parameter of a test that runs on every kernel table this machine can use.
inline std::string table_name(const testing::TestParamInfo<const KernelTable*>& parameter) {
  return parameter.param->name;
}

// Where QuantisedRows::words has what QuantisedRows::bytes has at `at`: the middle two of four change places.
inline size_t word_at(size_t at) { return at % 4 == 1 ? at + 1 : at % 4 == 2 ? at - 1 : at; }

inline std::vector<const KernelTable*> tables() { return {usable_kernels().begin(), usable_kernels().end()}; }

}  // namespace carat::exec::cpu
