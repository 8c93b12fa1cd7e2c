#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

// Rows [0, rows) of GGUF blocks at `raw` (device memory, rows of quant::row_bytes(cols) bytes) into rows
// [first_row, first_row + rows) of `out`, whose planes are writable device memory.
void repack(quant::Format format, const void* raw, uint32_t rows, const PackedView& out, uint32_t first_row,
            cudaStream_t stream);

// The matrix as bf16 [rows, cols], for matrix products. leading: elements between rows of `out`, at least cols.
void unpack_bf16(const PackedView& matrix, __nv_bfloat16* out, uint32_t leading, cudaStream_t stream);
// Selected rows as fp32 times `scale`: out[i] = matrix[ids[i]] * scale, rows of `leading` floats. An id outside the
// matrix gives NaN, so that it cannot pass unnoticed.
void gather_rows(const PackedView& matrix, const int32_t* ids, uint32_t count, float scale, float* out,
                 uint32_t leading, cudaStream_t stream, bool overlap);

}  // namespace carat::cuda
