// Attention of decode steps on the emulated machine.
#include "exec/cuda/kernels/attention/instances/attention_decode_128.cu"
#include "exec/cuda/kernels/attention/instances/attention_decode_128_q8.cu"
#include "exec/cuda/kernels/attention/instances/attention_decode_256.cu"
#include "exec/cuda/kernels/attention/instances/attention_decode_256_q8.cu"
#include "exec/cuda/kernels/attention/instances/attention_decode_512.cu"
#include "exec/cuda/kernels/attention/instances/attention_decode_512_q8.cu"
#include "exec/cuda/kernels/attention/instances/attention_step_256.cu"
#include "exec/cuda/kernels/attention/instances/attention_step_512.cu"
