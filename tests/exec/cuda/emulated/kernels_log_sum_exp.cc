// Log-probabilities on the emulated machine.
#include "exec/cuda/kernels/select/log_sum_exp.cu"
