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

inline std::vector<const KernelTable*> tables() { return {usable_kernels().begin(), usable_kernels().end()}; }

}  // namespace carat::exec::cpu
