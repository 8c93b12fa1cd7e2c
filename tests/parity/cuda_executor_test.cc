// The CUDA executor against the reference executor on random models of all five kinds, in every weight format and by
// every way to compute. (exec/conformance divides rows among passes in all ways.)
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::gemv_tolerance;
using test::prompt_tolerance;
using test::relative_error;
using test::skinny_tolerance;
using test::TinyKind;

std::vector<int32_t> some_tokens(size_t count, uint32_t V, uint32_t seed) {
  std::vector<int32_t> tokens;
  uint64_t state = seed * 7919u + 17u;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    tokens.push_back(static_cast<int32_t>((state >> 33) % V));
  }
  return tokens;
}

class CudaExecutorTest : public test::TinyModelOnGpu {
 protected:
  // The reference's logits of some tokens.
  static test::Logits reference(const std::shared_ptr<const model::Model>& model, const std::vector<int32_t>& tokens) {
    return test::feed(*make_reference_executor(model, options()), 0, tokens, 128);
  }
};

TEST_P(CudaExecutorTest, EveryFormatIsCloseToTheReference) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16, Format::kQ8_0, Format::kQ4_0, Format::kQ5_0,
                              Format::kQ4_1, Format::kQ5_1, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    const auto model = model_in(format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    const test::Logits expected = reference(model, tokens);
    // Rows one by one, three at a time by the matrix-vector kernels, five at a time batched, and all at once.
    for (const uint32_t chunk : {90u, 1u, 3u, 5u}) {
      const std::string kernels = chunk == 3 ? "batch=gemm" : "";
      const double error = print(format, chunk, kernels, relative_error(run(model, tokens, chunk, kernels), expected));
      const double tolerance = chunk > 64  ? prompt_tolerance(GetParam())
                               : chunk > 4 ? skinny_tolerance(GetParam())
                                           : gemv_tolerance(GetParam());
      EXPECT_LT(error, tolerance) << quant::info(format).name << " chunk " << chunk;
    }
  }
}

// The same products from quantised weights and activations: exact weights, and outputs in bf16 as before.
TEST_P(CudaExecutorTest, IntegerProductsAreCloseToTheReference) {
  for (const Format format :
       {Format::kQ8_0, Format::kQ4_0, Format::kQ5_0, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    const auto model = model_in(format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    const test::Logits expected = reference(model, tokens);
    std::map<uint32_t, std::set<double>> errors;  // by chunk
    // batch=gemm: 33 rows that all want logits would run as a batched decode step otherwise.
    for (const std::string kernels : {"gemm=mmq,batch=gemm", "gemm=mmq,activations=int8,batch=gemm"}) {
      // 8-bit activations are coarser than bf16, and random weights magnify that.
      const double tolerance = (kernels == "gemm=mmq,batch=gemm" ? 1.0 : 2.0) * prompt_tolerance(GetParam());
      for (const uint32_t chunk : {90u, 33u}) {
        const double error =
            print(format, chunk, kernels, relative_error(run(model, tokens, chunk, kernels), expected));
        EXPECT_LT(error, tolerance) << quant::info(format).name << " " << kernels;
        errors[chunk].insert(error);
      }
    }
    // Ways that round differently never agree to the last bit: the same error means that one was not taken.
    for (const auto& [chunk, found] : errors) EXPECT_EQ(found.size(), 2u) << "chunk " << chunk;
  }
}

// Gemma's activations are large where no norm has been yet: every way holds what fp16 could not.
TEST_P(CudaExecutorTest, ValuesBeyondFp16AreHeld) {
  for (const Format format : {Format::kBF16, Format::kQ8_0, Format::kQ4_0}) {
    const auto model = test::tiny_model_of_large_values(GetParam(), 32, format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    const test::Logits expected = reference(model, tokens);
    struct Way {
      uint32_t chunk;
      std::string kernels;
      double tolerance;
    };
    std::vector<Way> ways = {{90, "", prompt_tolerance(GetParam())}, {33, "batch=gemm", prompt_tolerance(GetParam())},
                             {5, "", skinny_tolerance(GetParam())},  {3, "", gemv_tolerance(GetParam())},
                             {1, "", gemv_tolerance(GetParam())},    {1, "decode=matvec", gemv_tolerance(GetParam())}};
    if (format != Format::kBF16) ways.push_back({90, "gemm=mmq,batch=gemm", prompt_tolerance(GetParam())});
    for (const Way& way : ways) {
      const double error =
          print(format, way.chunk, way.kernels, relative_error(run(model, tokens, way.chunk, way.kernels), expected));
      EXPECT_LT(error, way.tolerance) << quant::info(format).name << " chunk " << way.chunk << " " << way.kernels;
    }
  }
}

TEST_P(CudaExecutorTest, SwitchesDoNotMatter) {
  const auto& model = model_;
  const auto tokens = some_tokens(60, model->config().V, 7);
  const test::Logits decode = run(model, tokens, 1);
  EXPECT_EQ(relative_error(run(model, tokens, 1, "launch=single"), decode), 0.0) << "graph or not: the same kernels";
  EXPECT_EQ(relative_error(run(model, tokens, 1, "overlap=off"), decode), 0.0) << "overlap changes when, not what";
  EXPECT_LT(relative_error(run(model, tokens, 1, "decode=gemm"), decode), prompt_tolerance(GetParam()));
  const test::Logits prompt = run(model, tokens, 60);
  EXPECT_EQ(relative_error(run(model, tokens, 60, "ple.table=host"), prompt), 0.0) << "the same rows from elsewhere";
  EXPECT_EQ(relative_error(run(model, tokens, 1, "ple.table=host"), decode), 0.0);
  // The same bf16 values in every layer; only the LM head of many rows runs another way without a copy of its weights.
  EXPECT_LT(relative_error(run(model, tokens, 60, "gemm.weights=unpacked"), prompt), prompt_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaExecutorTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
