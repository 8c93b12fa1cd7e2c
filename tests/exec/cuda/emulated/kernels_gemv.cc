// Matrix-vector products on the emulated machine.
#include "exec/cuda/kernels/gemv/gemv.cu"
#include "exec/cuda/kernels/gemv/gemv_4bit.cu"
#include "exec/cuda/kernels/gemv/gemv_6bit.cu"
#include "exec/cuda/kernels/gemv/gemv_8bit.cu"
#include "exec/cuda/kernels/gemv/gemv_float.cu"
