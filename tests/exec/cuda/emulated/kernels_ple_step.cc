// The end of a layer by clusters on the emulated machine.
#include "exec/cuda/kernels/ple/ple_step.cu"
