// Matrix-vector products on the emulated machine.
#include "exec/cuda/kernels/matvec.cu"
#include "exec/cuda/kernels/matvec_4bit.cu"
#include "exec/cuda/kernels/matvec_6bit.cu"
#include "exec/cuda/kernels/matvec_8bit.cu"
#include "exec/cuda/kernels/matvec_float.cu"
