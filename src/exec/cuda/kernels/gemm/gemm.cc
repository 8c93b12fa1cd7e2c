#include "exec/cuda/kernels/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/gemm/cublaslt_library.h"

namespace carat::cuda {

namespace {

static_assert(sizeof(GemmAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

constexpr size_t kRowScalesSince = 120900;  // cuBLAS 12.9

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(ErrorCode::kDevice, "cuBLASLt error in {}: {}", what, cublaslt().get_status_string(status));
  }
}

cudaDataType_t type_of(GemmElement element) {
  switch (element) {
    case GemmElement::kF32:
      return CUDA_R_32F;
    case GemmElement::kBF16:
      return CUDA_R_16BF;
    case GemmElement::kE4M3:
      return CUDA_R_8F_E4M3;
  }
  return CUDA_R_32F;
}

template <typename T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_blas(cublaslt().desc_set_attribute(product, attribute, &value, sizeof value), "describing a product");
}

void set_row_scales([[maybe_unused]] cublasLtMatmulDesc_t product) {
#if CUBLAS_VERSION >= 120900
  const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  set(product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
  set(product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
#endif
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream records");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

bool library_has_row_scaled_fp8() {
  return CUBLAS_VERSION >= kRowScalesSince && cublaslt().get_version() >= kRowScalesSince;
}

Gemm::Gemm(size_t workspace_bytes) : workspace_(workspace_bytes, "matrix product workspace") {
  check_blas(cublaslt().create(&handle_), "creating a handle");
  check_blas(cublaslt().preference_create(&preference_), "creating a preference");
  check_blas(cublaslt().preference_set_attribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes, sizeof workspace_bytes),
             "setting the workspace");
}

Gemm::~Gemm() {
  for (auto& [product, prepared] : prepared_) destroy(prepared);
  if (preference_ != nullptr) cublaslt().preference_destroy(preference_);
  if (handle_ != nullptr) cublaslt().destroy(handle_);
}

void Gemm::destroy(Prepared& prepared) noexcept {
  if (prepared.product != nullptr) cublaslt().desc_destroy(prepared.product);
  for (const cublasLtMatrixLayout_t layout : {prepared.w, prepared.a, prepared.out}) {
    if (layout != nullptr) cublaslt().layout_destroy(layout);
  }
}

GemmMachine Gemm::machine(const std::string& gpu) const {
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "reading the driver's version");
  return {gpu, static_cast<uint64_t>(driver), cublaslt().get_version(), workspace_.bytes()};
}

// cuBLAS is column-major: our row-major out[m, n] is its n x m matrix W' A with W' = w transposed.
void Gemm::describe(const GemmProduct& product, Prepared& prepared) {
  const cudaDataType_t in = type_of(product.in), out = type_of(product.out);
  check_blas(cublaslt().desc_create(&prepared.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  set(prepared.product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(prepared.product, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  check_blas(cublaslt().layout_create(&prepared.w, in, product.k, product.n, product.k), "describing a matrix");
  check_blas(cublaslt().layout_create(&prepared.a, in, product.k, product.m, product.k), "describing a matrix");
  check_blas(cublaslt().layout_create(&prepared.out, out, product.n, product.m, product.n), "describing a matrix");
  if (product.in != GemmElement::kE4M3) return;
  set_row_scales(prepared.product);
  // Some address, until a launch says which: without one the ranking takes the scales for left out.
  const void* some = workspace_.data();
  set(prepared.product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some);
  set(prepared.product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some);
}

// The library says whether it can run it: what was kept in a file must not be able to do harm.
bool Gemm::take_remembered(const GemmProduct& product, Prepared& prepared) {
  const auto found = remembered_.find(product);
  if (found == remembered_.end()) return false;
  prepared.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(found->second);
  cublasLtMatmulHeuristicResult_t result{};
  return cublaslt().algo_check(handle_, prepared.product, prepared.w, prepared.a, prepared.out, prepared.out,
                               &prepared.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_.bytes();
}

Gemm::Prepared& Gemm::prepare(const GemmProduct& product) {
  const auto found = prepared_.find(product);
  if (found != prepared_.end()) return found->second;
  Prepared prepared;
  try {
    describe(product, prepared);
    if (!take_remembered(product, prepared)) prepared.algorithm = first_of_ranking(product, prepared);
  } catch (...) {
    destroy(prepared);
    throw;
  }
  return prepared_.emplace(product, prepared).first->second;
}

cublasLtMatmulAlgo_t Gemm::first_of_ranking(const GemmProduct& product, const Prepared& prepared) {
  const auto ranked = candidates(prepared, 1);
  if (!ranked.empty()) return ranked.front();
  if (product.in == GemmElement::kE4M3) {
    fail(ErrorCode::kUnsupported,
         "cuBLASLt {} has no algorithm for a product of {} x {} x {} in e4m3 with scales of rows; leave --kernels "
         "gemm=fp8 out",
         cublaslt().get_version(), product.m, product.n, product.k);
  }
  fail(ErrorCode::kUnsupported, "cuBLASLt has no algorithm for a product of {} x {} x {}", product.m, product.n,
       product.k);
}

std::vector<cublasLtMatmulAlgo_t> Gemm::candidates(const Prepared& prepared, int count) {
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublaslt().algo_get_heuristic(handle_, prepared.product, prepared.w, prepared.a, prepared.out, prepared.out,
                                    preference_, count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_blas(status, "ranking algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

cublasStatus_t Gemm::try_launch(const GemmProduct& product, const Prepared& prepared,
                                const cublasLtMatmulAlgo_t& algorithm, const Operands& operands, cudaStream_t stream) {
  if (product.in == GemmElement::kE4M3) {
    set(prepared.product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.w_scales);
    set(prepared.product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.a_scales);
  }
  const float one = 1.0f, zero = 0.0f;
  return cublaslt().matmul(handle_, prepared.product, &one, operands.w, prepared.w, operands.a, prepared.a, &zero,
                           operands.out, prepared.out, operands.out, prepared.out, &algorithm, workspace_.data(),
                           workspace_.bytes(), stream);
}

void Gemm::launch(const GemmProduct& product, const Operands& operands, cudaStream_t stream) {
  if (product.m == 0) return;
  const Prepared& prepared = prepare(product);
  check_blas(try_launch(product, prepared, prepared.algorithm, operands, stream), "a matrix product");
}

void Gemm::run(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
               cudaStream_t stream) {
  launch({m, n, k, GemmElement::kBF16, GemmElement::kBF16}, {a, w, nullptr, nullptr, out}, stream);
}

void Gemm::run(const __nv_bfloat16* a, const __nv_bfloat16* w, float* out, uint32_t m, uint32_t n, uint32_t k,
               cudaStream_t stream) {
  launch({m, n, k, GemmElement::kBF16, GemmElement::kF32}, {a, w, nullptr, nullptr, out}, stream);
}

void Gemm::run(const float* a, const float* w, float* out, uint32_t m, uint32_t n, uint32_t k, cudaStream_t stream) {
  launch({m, n, k, GemmElement::kF32, GemmElement::kF32}, {a, w, nullptr, nullptr, out}, stream);
}

void Gemm::run(const Fp8Matrix& a, const Fp8Matrix& w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
               cudaStream_t stream) {
  CARAT_CHECK(n % kFp8Unit == 0 && k % kFp8Unit == 0);
  launch({m, n, k, GemmElement::kE4M3, GemmElement::kBF16}, {a.values, w.values, a.scales, w.scales, out}, stream);
}

// Milliseconds of one run; infinite where the library refuses it. Clearing the workspace first empties the L2 cache of
// weights and gives the host time to put all runs on the stream before the first begins.
float Gemm::time(const GemmProduct& product, const Prepared& prepared, const cublasLtMatmulAlgo_t& algorithm,
                 const GemmTrial& trial, int repeats, cudaStream_t stream) {
  const Event start(true), stop(true);
  check(cudaMemsetAsync(workspace_.data(), 0, workspace_.bytes(), stream), "clearing the workspace");
  start.record(stream);
  for (int i = 0; i < repeats; ++i) {
    const GemmTrial::Weights& w = trial.weights[static_cast<size_t>(i) % trial.weights.size()];
    const Operands operands{trial.a, w.values, trial.a_scales, w.scales, trial.out};
    if (try_launch(product, prepared, algorithm, operands, stream) != CUBLAS_STATUS_SUCCESS) {
      return std::numeric_limits<float>::infinity();
    }
  }
  stop.record(stream);
  stop.synchronise();
  return stop.since(start) / static_cast<float>(repeats);
}

GemmFound Gemm::search(const GemmProduct& product, const GemmTrial& trial, double margin, cudaStream_t stream) {
  constexpr int kCandidates = 8, kConfirmations = 3, kMostRepeats = 8;
  constexpr float kLongEnough = 0.1f;  // ms: what takes as long is timed well by one run
  CARAT_CHECK(!trial.weights.empty() && product.m > 0 && !capturing(stream));
  Prepared& prepared = prepare(product);
  const auto ranked = candidates(prepared, kCandidates);
  if (ranked.size() < 2) return {std::bit_cast<GemmAlgorithm>(prepared.algorithm), false};
  const auto run = [&](size_t candidate, int repeats) {
    return time(product, prepared, ranked[candidate], trial, repeats, stream);
  };
  size_t best = 0;
  float least = std::numeric_limits<float>::max();
  int repeats = 1;
  for (size_t i = 0; i < ranked.size(); ++i) {
    run(i, 1);  // loads the kernel, which takes longer than all that follows
    if (i == 0) repeats = std::clamp(static_cast<int>(kLongEnough / std::max(run(i, 1), 1e-3f)), 1, kMostRepeats);
    const float took = run(i, repeats);
    if (took < least) {
      least = took;
      best = i;
    }
  }
  // The winner of many is often a lucky one: it has to be faster again.
  float of_first = std::numeric_limits<float>::max(), of_best = of_first;
  for (int i = 0; best != 0 && i < kConfirmations; ++i) {
    of_first = std::min(of_first, run(0, repeats));
    of_best = std::min(of_best, run(best, repeats));
  }
  const bool changed = best != 0 && of_best < (1.0 - margin) * of_first;
  prepared.algorithm = ranked[changed ? best : 0];
  return {std::bit_cast<GemmAlgorithm>(prepared.algorithm), changed};
}

void Gemm::tune(const __nv_bfloat16* a, const __nv_bfloat16* w, __nv_bfloat16* out, uint32_t m, uint32_t n, uint32_t k,
                cudaStream_t stream) {
  search({m, n, k, GemmElement::kBF16, GemmElement::kBF16}, {a, nullptr, {{w, nullptr}}, out}, 0.0, stream);
}

}  // namespace carat::cuda
