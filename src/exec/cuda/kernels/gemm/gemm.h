#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/kernels/gemm/gemm_shape.h"
#include "exec/cuda/passes/gemm_cache.h"

namespace carat::cuda {

// Operands to time a product with. Each run takes the next of the weights: in a pass they come from memory, because
// those of other layers were read in between.
struct GemmTrial {
  struct Weights {
    const void* values;
    const float* scales;  // of e4m3
  };
  const void* a = nullptr;
  const float* a_scales = nullptr;  // of e4m3
  std::vector<Weights> weights;
  void* out = nullptr;  // overwritten
};

struct GemmFound {
  GemmAlgorithm algorithm{};
  bool changed = false;  // it is not the first of the library's ranking
};

// out[m, n] = a[m, k] w[n, k]^T with fp32 accumulation, through cuBLASLt: bf16 operands and bf16 or fp32 results; e4m3
// operands with scales of their rows and bf16 results; fp32. The algorithm of a shape is decided once: one that was
// found before, or the first of the library's ranking, or the fastest of its best (search). One stream at a time; not
// thread-safe.
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
  // n and k are multiples of kFp8Unit.
  void run(const Fp8Matrix& a, const Fp8Matrix& w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
           cudaStream_t stream);

  // Times the library's best candidates for a product and keeps the fastest for run() where it is faster than the first
  // of the ranking by `margin` of its time, otherwise that one. Never while the stream records a graph.
  GemmFound search(const GemmProduct& product, const GemmTrial& trial, double margin, cudaStream_t stream);
  // What an earlier search found; taken where the library still accepts it.
  void remember(const GemmAlgorithms& algorithms) { remembered_ = algorithms; }
  // What algorithms found here are good for.
  GemmMachine machine(const std::string& gpu) const;
  // Throws kUnsupported where the library has no algorithm.
  void require(const GemmProduct& product) { prepare(product); }

  // The fastest candidate for one pair of operands, for measuring what the machine can do.
  void tune(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
            cudaStream_t stream);

 private:
  struct Prepared {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, a = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  struct Operands {
    const void* a;
    const void* w;
    const float* a_scales;
    const float* w_scales;
    void* out;
  };
  static void destroy(Prepared& prepared) noexcept;
  Prepared& prepare(const GemmProduct& product);
  cublasLtMatmulAlgo_t first_of_ranking(const GemmProduct& product, const Prepared& prepared);
  void describe(const GemmProduct& product, Prepared& prepared);
  bool take_remembered(const GemmProduct& product, Prepared& prepared);
  std::vector<cublasLtMatmulAlgo_t> candidates(const Prepared& prepared, int count);
  void launch(const GemmProduct& product, const Operands& operands, cudaStream_t stream);
  cublasStatus_t try_launch(const GemmProduct& product, const Prepared& prepared, const cublasLtMatmulAlgo_t& algorithm,
                            const Operands& operands, cudaStream_t stream);
  float time(const GemmProduct& product, const Prepared& prepared, const cublasLtMatmulAlgo_t& algorithm,
             const GemmTrial& trial, int repeats, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  DeviceMemory workspace_;
  std::map<GemmProduct, Prepared> prepared_;
  GemmAlgorithms remembered_;
};

// Whether this library multiplies e4m3 matrices with a scale for each row.
bool library_has_row_scaled_fp8();

}  // namespace carat::cuda
