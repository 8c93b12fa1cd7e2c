#include "engine/failing_kernel.h"

namespace carat::test {

namespace {
__global__ void failing_kernel() { asm volatile("trap;"); }
}  // namespace

void fail_on_the_gpu() {
  failing_kernel<<<1, 1>>>();
  cudaDeviceSynchronize();
}

}  // namespace carat::test
