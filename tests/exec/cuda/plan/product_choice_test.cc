#include "exec/cuda/plan/product_choice.h"

#include <gtest/gtest.h>

#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"

namespace carat::cuda {
namespace {

using test::made_up_gpu;
using test::model_of;
using test::request_of;

Plan plan_of(const model::Model& model, std::string_view kernels, uint32_t capability = 90) {
  return make_plan(model, made_up_gpu(capability, 141), request_of(4096, kernels));
}

// The path of all groups that satisfy `which`; fails the test where they differ.
template <typename Which>
ProductPath path_of(const model::Model& model, const Plan& plan, const Which& which) {
  std::vector<ProductPath> paths;
  for (uint32_t layer = 0; layer < model.config().L; ++layer) {
    for_each_group(model, layer, [&](const LayerGroup& group) {
      if (which(group.kind())) paths.push_back(plan.products.of(layer, group.kind()));
    });
  }
  EXPECT_FALSE(paths.empty());
  for (const ProductPath path : paths) EXPECT_EQ(path, paths.front());
  return paths.front();
}
bool is_ple(GroupKind kind) { return kind == GroupKind::kPleGate || kind == GroupKind::kPleProject; }

TEST(ProductChoice, FollowsThePlacement) {
  const model::Model& model = model_of("e4b", "q8_0");
  struct Case {
    const char* kernels;
    ProductPath dense, ple, ple_input, head;
  };
  for (const Case& c : {
           Case{"", ProductPath::kBf16, ProductPath::kBf16, ProductPath::kBf16, ProductPath::kBf16},
           Case{"gemm.weights=unpacked", ProductPath::kUnpack, ProductPath::kUnpack, ProductPath::kUnpack,
                ProductPath::kGemv},
           Case{"gemm.weights=dequantised", ProductPath::kWgmma, ProductPath::kWgmma, ProductPath::kUnpack,
                ProductPath::kGemv},
           Case{"gemm=mmq", ProductPath::kMmq, ProductPath::kMmq, ProductPath::kUnpack, ProductPath::kGemv},
           Case{"gemm=fp8", ProductPath::kFp8, ProductPath::kBf16, ProductPath::kBf16, ProductPath::kBf16},
       }) {
    SCOPED_TRACE(c.kernels);
    const Plan plan = plan_of(model, c.kernels);
    EXPECT_EQ(path_of(model, plan, is_dense), c.dense);
    EXPECT_EQ(path_of(model, plan, is_ple), c.ple);
    EXPECT_EQ(plan.products.ple_input, c.ple_input);
    EXPECT_EQ(plan.products.head, c.head);
  }
}

// Formats a kernel cannot read are unpacked for the library, group by group.
TEST(ProductChoice, FollowsTheFormats) {
  const model::Model& six_bits = model_of("e4b", "q6_k-pure");
  EXPECT_EQ(path_of(six_bits, plan_of(six_bits, "gemm.weights=dequantised"), is_dense), ProductPath::kUnpack);
  EXPECT_EQ(path_of(six_bits, plan_of(six_bits, "gemm=mmq"), is_dense), ProductPath::kMmq);
  // Values and some down matrices are in six bits, the others in four.
  const model::Model& mixture = model_of("e4b", "q4_k_m");
  const Plan plan = plan_of(mixture, "gemm.weights=dequantised");
  EXPECT_EQ(plan.products.of(0, GroupKind::kQkv), ProductPath::kUnpack) << "one matrix of the group is in six bits";
  EXPECT_EQ(plan.products.of(0, GroupKind::kGateUp), ProductPath::kWgmma);
  const model::Model& floats = model_of("e4b", "bf16");
  EXPECT_EQ(path_of(floats, plan_of(floats, "gemm.weights=unpacked"), is_dense), ProductPath::kUnpack);
}

TEST(ProductChoice, ExpertsAreReadPackedByWarpgroups) {
  const model::Model& model = model_of("26b-a4b", "q4_0-pure");
  const auto router = [](GroupKind kind) { return kind == GroupKind::kRouter; };
  for (const char* kernels : {"", "gemm=mmq", "gemm.weights=unpacked"}) {
    const Plan plan = plan_of(model, kernels);
    EXPECT_EQ(path_of(model, plan, router), ProductPath::kFp32) << kernels;
  }
  EXPECT_EQ(path_of(model, plan_of(model, ""), is_expert), ProductPath::kWgmma);
  EXPECT_EQ(path_of(model, plan_of(model, "experts=mma"), is_expert), ProductPath::kBf16);
  EXPECT_EQ(path_of(model, plan_of(model, "experts=mma,gemm.weights=unpacked"), is_expert), ProductPath::kUnpack);
  EXPECT_EQ(path_of(model, plan_of(model, "", 89), is_expert), ProductPath::kUnpack) << "beside integer products";
}

// Scratch memory is for what is unpacked, and copies are of what reads them.
TEST(ProductChoice, SizesFollowThePaths) {
  for (const char* preset : {"e4b", "26b-a4b"}) {
    const model::Model& model = model_of(preset, "q4_k_m");
    for (const char* kernels : {"", "gemm.weights=dequantised", "gemm.weights=unpacked", "gemm=mmq", "gemm=fp8"}) {
      SCOPED_TRACE(std::string(preset) + " " + kernels);
      const Plan plan = plan_of(model, kernels);
      uint64_t unpacked = 0, bf16 = model.weights().output.rows * model.weights().output.cols * 2, e4m3 = 0;
      const model::Matrix& projection = model.weights().per_layer_model_proj;
      if (plan.products.ple_input == ProductPath::kUnpack) unpacked = projection.rows * projection.cols;
      bf16 += projection.rows * projection.cols * 2;
      for (uint32_t layer = 0; layer < model.config().L; ++layer) {
        for_each_group(model, layer, [&](const LayerGroup& group) {
          const ProductPath path = plan.products.of(layer, group.kind());
          if (path == ProductPath::kUnpack) unpacked = std::max(unpacked, group.elements());
          if (path == ProductPath::kBf16) bf16 += 2 * group.elements();
          if (path == ProductPath::kFp8) e4m3 += group.elements();
        });
      }
      EXPECT_EQ(plan.unpack_bytes, 2 * unpacked);
      if (plan.placement.resident_bf16) {
        EXPECT_EQ(plan.weights.bf16_copies(plan.placement), bf16);
      }
      EXPECT_GE(plan.weights.fp8_copies(plan.placement), e4m3);
    }
  }
}

}  // namespace
}  // namespace carat::cuda
