#pragma once

#include "exec/cuda/weights/packed.h"
#include "quant/format.h"

namespace carat::cuda {

// The packing that holds a format's values exactly; formats without one of their own become 16-bit floats (MXFP4, NVFP4
// and those with ternary digits or a bit for an element exactly, Q2_K, Q3_K, Q4_1, Q5_1, IQ4_XS and the formats with
// codebooks rounded to fp16). The plan warns of that (plan/).
Packing packing_of(quant::Format format);

}  // namespace carat::cuda
