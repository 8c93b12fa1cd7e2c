// Decode attention on the emulated machine.
#include "exec/cuda/kernels/attention_decode_256.cu"
#include "exec/cuda/kernels/attention_decode_512.cu"
#include "exec/cuda/kernels/attention_step_256.cu"
#include "exec/cuda/kernels/attention_step_512.cu"
