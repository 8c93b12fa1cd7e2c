#include "exec/cuda/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/device/stream.h"

namespace carat::cuda {

namespace {

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(ErrorCode::kDevice, "cuBLASLt error in {}: {}", what, cublasLtGetStatusString(status));
  }
}

}  // namespace

Gemm::Gemm(size_t workspace_bytes) : workspace_(workspace_bytes, "matrix product workspace") {
  check_blas(cublasLtCreate(&handle_), "creating a handle");
  check_blas(cublasLtMatmulPreferenceCreate(&preference_), "creating a preference");
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes),
             "setting the workspace");
}

Gemm::~Gemm() {
  for (auto& [shape, prepared] : prepared_) {
    cublasLtMatmulDescDestroy(prepared.product);
    cublasLtMatrixLayoutDestroy(prepared.w);
    cublasLtMatrixLayoutDestroy(prepared.a);
    cublasLtMatrixLayoutDestroy(prepared.out);
  }
  if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Gemm::Prepared& Gemm::prepare(const Shape& shape) {
  const auto found = prepared_.find(shape);
  if (found != prepared_.end()) return found->second;
  // cuBLAS is column-major: our row-major out[m, n] is its n x m matrix W' A with W' = w transposed.
  Prepared prepared;
  check_blas(cublasLtMatmulDescCreate(&prepared.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  check_blas(
      cublasLtMatmulDescSetAttribute(prepared.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
      "describing a product");
  check_blas(cublasLtMatmulDescSetAttribute(prepared.product, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain),
             "describing a product");
  check_blas(cublasLtMatrixLayoutCreate(&prepared.w, shape.in, shape.k, shape.n, shape.k), "describing a matrix");
  check_blas(cublasLtMatrixLayoutCreate(&prepared.a, shape.in, shape.k, shape.m, shape.k), "describing a matrix");
  check_blas(cublasLtMatrixLayoutCreate(&prepared.out, shape.out, shape.n, shape.m, shape.n), "describing a matrix");
  const auto ranked = candidates(prepared, 1);
  if (ranked.empty()) {
    fail(ErrorCode::kUnsupported, "cuBLASLt has no algorithm for a product of {} x {} x {}", shape.m, shape.n, shape.k);
  }
  prepared.algorithm = ranked.front();
  return prepared_.emplace(shape, prepared).first->second;
}

std::vector<cublasLtMatmulAlgo_t> Gemm::candidates(const Prepared& prepared, int count) {
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(handle_, prepared.product, prepared.w, prepared.a, prepared.out,
                                            prepared.out, preference_, count, results.data(), &found),
             "ranking algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

void Gemm::launch(const Shape& shape, const void* a, const void* w, void* out, cudaStream_t stream) {
  if (shape.m == 0) return;
  const Prepared& prepared = prepare(shape);
  const float one = 1.0f, zero = 0.0f;
  check_blas(cublasLtMatmul(handle_, prepared.product, &one, w, prepared.w, a, prepared.a, &zero, out, prepared.out,
                            out, prepared.out, &prepared.algorithm, workspace_.data(), workspace_.bytes(), stream),
             "a matrix product");
}

void Gemm::run(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
               cudaStream_t stream) {
  launch({m, n, k, CUDA_R_16BF, CUDA_R_16BF}, a, w, out, stream);
}

void Gemm::run(const __nv_bfloat16* a, const __nv_bfloat16* w, float* out, uint32_t m, uint32_t n, uint32_t k,
               cudaStream_t stream) {
  launch({m, n, k, CUDA_R_16BF, CUDA_R_32F}, a, w, out, stream);
}

void Gemm::run(const float* a, const float* w, float* out, uint32_t m, uint32_t n, uint32_t k, cudaStream_t stream) {
  launch({m, n, k, CUDA_R_32F, CUDA_R_32F}, a, w, out, stream);
}

void Gemm::tune(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
                cudaStream_t stream) {
  constexpr int kCandidates = 6, kRepeats = 3;
  const Shape shape{m, n, k, CUDA_R_16BF, CUDA_R_16BF};
  Prepared& prepared = prepare(shape);
  float best = std::numeric_limits<float>::max();
  cublasLtMatmulAlgo_t winner = prepared.algorithm;
  for (const cublasLtMatmulAlgo_t& algorithm : candidates(prepared, kCandidates)) {
    prepared.algorithm = algorithm;
    launch(shape, a, w, out, stream);  // warm-up
    const Event start(true), stop(true);
    start.record(stream);
    for (int repeat = 0; repeat < kRepeats; ++repeat) launch(shape, a, w, out, stream);
    stop.record(stream);
    stop.synchronise();
    const float time = stop.since(start);
    if (time < best) {
      best = time;
      winner = algorithm;
    }
  }
  prepared.algorithm = winner;
}

}  // namespace carat::cuda
