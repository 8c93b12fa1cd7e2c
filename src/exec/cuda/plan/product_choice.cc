#include "exec/cuda/plan/product_choice.h"

namespace carat::cuda {

namespace {

ProductPath path_of(const LayerGroup& group, const Plan& plan) {
  const ProductPath bf16 = plan.placement.resident_bf16 ? ProductPath::kBf16 : ProductPath::kUnpack;
  // Flipping an expert costs more than any rounding elsewhere.
  if (group.kind() == GroupKind::kRouter) return ProductPath::kFp32;
  if (is_expert(group.kind())) return plan.warpgroup_experts && wgmma_reads(group) ? ProductPath::kWgmma : bf16;
  if (plan.placement.resident_fp8 && fp8_reads(group)) return ProductPath::kFp8;
  if (plan.dequantise && wgmma_reads(group)) return ProductPath::kWgmma;
  if (plan.gemm.kind == GemmKind::kMmq && mmq_reads(group)) return ProductPath::kMmq;
  return bf16;
}

}  // namespace

ProductPaths choose_product_paths(const model::Model& model, const Plan& plan) {
  ProductPaths paths(model.config().L);
  for (uint32_t layer = 0; layer < model.config().L; ++layer) {
    for_each_group(model, layer,
                   [&](const LayerGroup& group) { paths.set(layer, group.kind(), path_of(group, plan)); });
  }
  const bool copies = plan.placement.resident_bf16;
  paths.head = copies ? ProductPath::kBf16 : ProductPath::kGemv;
  paths.ple_input = copies ? ProductPath::kBf16 : ProductPath::kUnpack;
  return paths;
}

}  // namespace carat::cuda
