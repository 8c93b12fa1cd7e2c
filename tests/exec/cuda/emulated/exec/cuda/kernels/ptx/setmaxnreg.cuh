#pragma once

// ptx/setmaxnreg.cuh on the emulated machine.

namespace carat::cuda {

template <int kCount>
void setmaxnreg_dec() {}
template <int kCount>
void setmaxnreg_inc() {}

}  // namespace carat::cuda
