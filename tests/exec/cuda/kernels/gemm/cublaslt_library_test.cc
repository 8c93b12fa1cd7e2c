// The library is loaded at run time: what happens where it is, where it is not, and where it is another. No GPU is
// used.
#include "exec/cuda/kernels/gemm/cublaslt_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace carat::cuda {
namespace {

using testing::HasSubstr;

std::string problem_with(const std::vector<std::string>& files) {
  try {
    load_cublaslt(files);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

TEST(CublasLtLibrary, HasEveryFunctionThatCaratCalls) {
  try {
    EXPECT_EQ(cublaslt().get_version() / 10000, size_t{CUBLAS_VER_MAJOR});
    EXPECT_THAT(cublaslt().get_status_string(CUBLAS_STATUS_NOT_SUPPORTED), HasSubstr("not supported"));
  } catch (const Error& error) {
    GTEST_SKIP() << "skipped: " << error.what();
  }
}

TEST(CublasLtLibrary, WhoHasNoneIsToldWhatToInstall) {
  const std::string problem = problem_with({"libcublasLt.so.0", "/nonexistent/libcublasLt.so.13"});
  EXPECT_THAT(problem, HasSubstr("libcublasLt.so.0"));
  EXPECT_THAT(problem, HasSubstr("/nonexistent/libcublasLt.so.13"));
  EXPECT_THAT(problem, HasSubstr("package libcublas-"));
  EXPECT_THAT(problem, HasSubstr("LD_LIBRARY_PATH"));
}

TEST(CublasLtLibrary, AnotherLibraryIsRefused) {
  EXPECT_THAT(problem_with({"/nonexistent/first.so", "libm.so.6"}), HasSubstr("libm.so.6 has no cublasLt"));
}

}  // namespace
}  // namespace carat::cuda
