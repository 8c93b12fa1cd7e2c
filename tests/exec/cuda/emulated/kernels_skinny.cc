// Products of decode batches on the emulated machine.
#include "exec/cuda/kernels/skinny/skinny_gemm.cu"
#include "exec/cuda/kernels/skinny/skinny_gemm_4bit.cu"
#include "exec/cuda/kernels/skinny/skinny_gemm_6bit.cu"
#include "exec/cuda/kernels/skinny/skinny_gemm_8bit.cu"
#include "exec/cuda/kernels/skinny/skinny_gemm_float.cu"
#include "exec/cuda/kernels/skinny/skinny_rows.cu"
