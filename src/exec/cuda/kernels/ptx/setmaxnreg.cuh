#pragma once

// setmaxnreg (sm_90a): a warpgroup gives registers back to the SM's pool (dec) or takes more from it (inc). kCount is
// the new number per thread; all warps of the warpgroup execute it together, and inc waits until the pool has enough.

namespace carat::cuda {

template <int kCount>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace carat::cuda
