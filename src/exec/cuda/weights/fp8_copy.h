#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// The matrix as e4m3 [rows, cols] with the scale of each row: largest |weight| / 448. cols as fp8_columns_fit() says.
void unpack_fp8(const PackedView& matrix, const Fp8Rows& out, cudaStream_t stream);

}  // namespace carat::cuda
