#include "exec/cuda/device/tensor_map.h"

#include <cudaTypedefs.h>

#include "base/error.h"
#include "exec/cuda/device/check.h"

namespace carat::cuda {
namespace {

// The driver's function, found at run time: carat does not link the driver, so that it starts where there is none.
PFN_cuTensorMapEncodeTiled_v12000 encode_function() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "looking for cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess || found == nullptr) {
      fail(ErrorCode::kDevice,
           "the NVIDIA driver has no cuTensorMapEncodeTiled; install a driver for CUDA 12 or newer, or use --kernels "
           "gemm.weights=unpacked");
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap make_tensor_map(const void* base, const TensorMapShape& shape) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {shape.row_elements, shape.rows}, pitch[1] = {shape.pitch_bytes};
  const cuuint32_t box[2] = {shape.box_elements, shape.box_rows}, one[2] = {1, 1};
  const CUresult status = encode_function()(&map, shape.type, 2, const_cast<void*>(base), sizes, pitch, box, one,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE,
                                            shape.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    fail(ErrorCode::kDevice, "cuTensorMapEncodeTiled failed with {} for {} rows of {} elements, {} bytes apart",
         static_cast<int>(status), shape.rows, shape.row_elements, shape.pitch_bytes);
  }
  return map;
}

}  // namespace carat::cuda
