#pragma once

#include <cstdint>

namespace carat::cuda {

// A place in a ring of slots in shared memory: which slot is next, and the parity of its current round.
template <uint32_t kSlots>
struct RingPosition {
  uint32_t slot = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace carat::cuda
