#include "exec/cuda/kernels/gemm/cublaslt_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <vector>

#include "base/error.h"

namespace carat::cuda {

namespace {

std::string dl_problem() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

template <typename Function>
void find(void* library, const std::string& file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    fail(ErrorCode::kUnsupported, "{} has no {}: it is not cuBLASLt {}; install NVIDIA's package libcublas-{}-{}", file,
         name, CUBLAS_VER_MAJOR, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
}

CublasLt functions_of(void* library, const std::string& file) {
  CublasLt found{};
  find(library, file, "cublasLtGetVersion", found.get_version);
  find(library, file, "cublasLtGetStatusString", found.get_status_string);
  find(library, file, "cublasLtCreate", found.create);
  find(library, file, "cublasLtDestroy", found.destroy);
  find(library, file, "cublasLtMatmul", found.matmul);
  find(library, file, "cublasLtMatmulAlgoCheck", found.algo_check);
  find(library, file, "cublasLtMatmulAlgoGetHeuristic", found.algo_get_heuristic);
  find(library, file, "cublasLtMatmulDescCreate", found.desc_create);
  find(library, file, "cublasLtMatmulDescDestroy", found.desc_destroy);
  find(library, file, "cublasLtMatmulDescSetAttribute", found.desc_set_attribute);
  find(library, file, "cublasLtMatrixLayoutCreate", found.layout_create);
  find(library, file, "cublasLtMatrixLayoutDestroy", found.layout_destroy);
  find(library, file, "cublasLtMatmulPreferenceCreate", found.preference_create);
  find(library, file, "cublasLtMatmulPreferenceDestroy", found.preference_destroy);
  find(library, file, "cublasLtMatmulPreferenceSetAttribute", found.preference_set_attribute);
  return found;
}

}  // namespace

CublasLt load_cublaslt(std::span<const std::string> files) {
  std::string problems;
  for (const std::string& file : files) {
    // Local: its names are nobody else's business, least of all those of a program that libcarat is part of.
    if (void* library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL)) return functions_of(library, file);
    problems += (problems.empty() ? "" : "; ") + dl_problem();
  }
  fail(ErrorCode::kUnsupported,
       "cuBLASLt {} cannot be loaded ({}); install NVIDIA's package libcublas-{}-{}, or name the library's folder in "
       "LD_LIBRARY_PATH",
       CUBLAS_VER_MAJOR, problems, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

const CublasLt& cublaslt() {
  static const CublasLt library = [] {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    const std::vector<std::string> files = {
        name, "/usr/local/cuda/lib64/" + name,
        fmt::format("/usr/local/cuda-{}.{}/lib64/{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, name),
        std::string(CARAT_CUDA_LIBRARIES) + "/" + name};
    return load_cublaslt(files);
  }();
  return library;
}

}  // namespace carat::cuda
