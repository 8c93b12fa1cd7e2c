#pragma once

// ptx/fence_proxy.cuh on the emulated machine.

namespace carat::cuda {

inline void fence_proxy_async() {}

}  // namespace carat::cuda
