#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "exec/cuda/device/memory.h"

namespace carat::cuda {

// out[m, n] = a[m, k] w[n, k]^T with bf16 operands, fp32 accumulation and bf16 or fp32 results, through cuBLASLt. The
// algorithm of a shape is chosen once: by the library's ranking, or by timing its best candidates (tune). One stream at
// a time; not thread-safe.
class Gemm {
 public:
  explicit Gemm(size_t workspace_bytes);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
           cudaStream_t stream);
  void run(const __nv_bfloat16* a, const __nv_bfloat16* w, float* out, uint32_t m, uint32_t n, uint32_t k,
           cudaStream_t stream);
  // fp32 operands without rounding to a shorter format: the expert router.
  void run(const float* a, const float* w, float* out, uint32_t m, uint32_t n, uint32_t k, cudaStream_t stream);

  // Times the library's candidates for a shape on the given buffers (their contents are overwritten in `out`) and keeps
  // the fastest for run(). Not during graph capture. For measuring what the machine can do: prompts take the ranking's
  // first, because timing the candidates on first use made no whole prompt faster (docs/kernels.md).
  void tune(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
            cudaStream_t stream);

 private:
  struct Shape {
    uint32_t m, n, k;
    cudaDataType_t in, out;
    auto key() const { return std::make_tuple(m, n, k, static_cast<int>(in), static_cast<int>(out)); }
    bool operator<(const Shape& other) const { return key() < other.key(); }
  };
  struct Prepared {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, a = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  Prepared& prepare(const Shape& shape);
  std::vector<cublasLtMatmulAlgo_t> candidates(const Prepared& prepared, int count);
  void launch(const Shape& shape, const void* a, const void* w, void* out, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  DeviceMemory workspace_;
  std::map<Shape, Prepared> prepared_;
};

}  // namespace carat::cuda
