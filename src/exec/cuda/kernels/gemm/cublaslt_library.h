#pragma once

#include <cublasLt.h>

#include <span>
#include <string>

namespace carat::cuda {

// The functions of cuBLASLt that carat calls. The library is not linked but loaded when a GPU is found: it has half a
// gigabyte, and a program that needs it to start would not start on a machine without NVIDIA's packages.
struct CublasLt {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;
};

// Loads the first of these files that is there; it stays loaded. Throws kUnsupported, which says what to install, where
// none is there or the one that is lacks a function.
CublasLt load_cublaslt(std::span<const std::string> files);

// The library of the version carat was compiled with, from where the dynamic linker looks or NVIDIA's packages put it.
// Loaded once; thread-safe. Throws as load_cublaslt().
const CublasLt& cublaslt();

}  // namespace carat::cuda
