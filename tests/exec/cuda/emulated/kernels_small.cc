// Small kernels of decode steps on the emulated machine.
#include "exec/cuda/kernels/elementwise/feed_forward.cu"
#include "exec/cuda/kernels/elementwise/norm.cu"
#include "exec/cuda/kernels/elementwise/rope.cu"
#include "exec/cuda/kernels/moe/moe.cu"
#include "exec/cuda/kernels/ple/ple_fetch.cu"
