// Small kernels of decode steps on the emulated machine.
#include "exec/cuda/kernels/feed_forward.cu"
#include "exec/cuda/kernels/moe.cu"
#include "exec/cuda/kernels/norm.cu"
#include "exec/cuda/kernels/ple_fetch.cu"
#include "exec/cuda/kernels/rope.cu"
