// Rows sorted by expert, on the emulated machine.
#include "exec/cuda/kernels/moe/moe_sort.cu"
