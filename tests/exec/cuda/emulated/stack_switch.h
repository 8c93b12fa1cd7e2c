#pragma once

// Stacks to run on, for x86-64. A few thousand threads that meet every few hundred instructions would spend most of
// their time in swapcontext(), which asks the system for the signal mask each time.
#include <cstddef>
#include <cstdint>

namespace carat::cuda::emulated {

// Goes on where `to` was left; `*from` is where this one can be gone on with.
extern "C" void carat_switch_stack(void** from, void* to);
inline void switch_stack(void** from, void* to) { carat_switch_stack(from, to); }

// A stack that has not run: the first switch to it enters `function`, which must not return.
void* fresh_stack(uint8_t* memory, size_t bytes, void (*function)());

}  // namespace carat::cuda::emulated
