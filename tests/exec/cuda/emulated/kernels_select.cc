// Selection of candidates on the emulated machine.
#include "exec/cuda/kernels/select/select.cu"
