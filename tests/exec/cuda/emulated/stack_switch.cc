#include "exec/cuda/emulated/stack_switch.h"

#include <cstring>

// Puts aside the registers that a call keeps, changes stacks and takes those of the other.
asm(R"(
  .pushsection .text
  .globl carat_switch_stack
  .type carat_switch_stack, @function
carat_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size carat_switch_stack, . - carat_switch_stack
  .popsection
)");

namespace carat::cuda::emulated {

void* fresh_stack(uint8_t* memory, size_t bytes, void (*function)()) {
  // The registers, where to go, and a return address that is none: the stack is as a call leaves it, eight bytes below
  // a multiple of 16.
  constexpr size_t kRegisters = 6, kWords = kRegisters + 2;
  const uintptr_t top = (reinterpret_cast<uintptr_t>(memory) + bytes) / 16 * 16;
  auto* words = reinterpret_cast<uint64_t*>(top) - kWords;
  std::memset(words, 0, kWords * sizeof(uint64_t));
  words[kRegisters] = reinterpret_cast<uint64_t>(function);
  return words;
}

}  // namespace carat::cuda::emulated
