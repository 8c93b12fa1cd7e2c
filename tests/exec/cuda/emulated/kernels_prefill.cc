// Attention of prompts on the emulated machine, but for that by warpgroups (attention_wgmma_test.cc).
#include "exec/cuda/kernels/attention/instances/attention_prefill_128.cu"
#include "exec/cuda/kernels/attention/instances/attention_prefill_128_q8.cu"
#include "exec/cuda/kernels/attention/instances/attention_prefill_256.cu"
#include "exec/cuda/kernels/attention/instances/attention_prefill_256_q8.cu"
#include "exec/cuda/kernels/attention/instances/attention_prefill_512.cu"
#include "exec/cuda/kernels/attention/instances/attention_prefill_512_q8.cu"
