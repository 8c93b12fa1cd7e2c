#pragma once

// Ordering between ordinary accesses (the generic proxy) and those of wgmma and asynchronous copies (the async proxy).

namespace carat::cuda {

// Orders this thread's ordinary writes to shared memory before reads by wgmma or the copy engine.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace carat::cuda
