#pragma once

#include "exec/cuda/weights/packed.h"
#include "quant/format.h"

namespace carat::cuda {

// The packing that holds a format's values exactly; formats without one of their own become 16-bit floats (MXFP4
// exactly, Q2_K, Q3_K, Q4_1 and Q5_1 rounded to fp16).
Packing packing_of(quant::Format format);

}  // namespace carat::cuda
