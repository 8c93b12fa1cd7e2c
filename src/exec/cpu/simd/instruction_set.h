#pragma once

#include <span>

#include "exec/cpu/kernel_table.h"
#include "exec/kernel_choice.h"

namespace carat::exec::cpu {

// The kernel tables this machine can run, slowest first. At least the portable one.
std::span<const KernelTable* const> usable_kernels();

// The fastest table of this machine, or the one the slot "dot" names, with the products of few rows that the slot
// "decode" names. Throws kUnsupported when the machine lacks the instructions it needs.
const KernelTable& choose_kernels(const KernelChoices& choices);

}  // namespace carat::exec::cpu
