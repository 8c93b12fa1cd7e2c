// Products of decode batches on the emulated machine.
#include "exec/cuda/kernels/batch_product.cu"
#include "exec/cuda/kernels/batch_product_4bit.cu"
#include "exec/cuda/kernels/batch_product_6bit.cu"
#include "exec/cuda/kernels/batch_product_8bit.cu"
#include "exec/cuda/kernels/batch_product_float.cu"
#include "exec/cuda/kernels/batch_rows.cu"
