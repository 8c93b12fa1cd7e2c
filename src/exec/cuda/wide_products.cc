// Products of prompt chunks by warpgroups (sm_90), and those of experts by either kernel.
#include <algorithm>

#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/feed_forward.h"
#include "exec/cuda/kernels/wgmma_product.h"

namespace carat::cuda {

bool CudaExecutor::dequantises(const MatrixGroup& group) const {
  return plan_.dequantise && !group.has_fp8() &&
         std::all_of(group.parts.begin(), group.parts.end(),
                     [](const PackedView& part) { return wgmma_reads(part.packing, part.rows, part.cols); });
}

// Neighbours of the same packing in one launch; their results stand side by side in `out`.
void CudaExecutor::product_by_warpgroups(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                                         __nv_bfloat16* out, uint32_t rows) {
  WgmmaProduct product;
  product.a = a;
  product.total = rows;
  for (size_t p = first; p < last; ++p) product.leading += group.parts[p].rows;
  uint32_t column = 0;
  for (size_t p = first; p < last; ++p) {
    if (product.parts.empty()) product.out = out + column;
    product.parts.push_back({.weights = group.parts[p], .rows = group.parts[p].rows});
    column += group.parts[p].rows;
    if (p + 1 < last && product.parts.size() < kWgmmaMaxParts && group.parts[p + 1].packing == group.parts[p].packing) {
      continue;
    }
    wgmma_product(product, gpu_.sm_count, how());
    product.parts.clear();
  }
}

// out = gelu(gate) * up in one launch.
void CudaExecutor::gate_up_by_warpgroups(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out,
                                         uint32_t rows) {
  WgmmaProduct product;
  for (const PackedView& part : group.parts) product.parts.push_back({.weights = part, .rows = part.rows});
  product.geglu = true;
  product.a = a;
  product.total = rows;
  product.out = out;
  wgmma_product(product, gpu_.sm_count, how());
}

// Rows sorted by expert: gate and up with GELU, then down. Weights as they are packed, or their bf16 copies (resident
// or unpacked now) where the kernel cannot read the packing.
void CudaExecutor::experts_by_warpgroups(uint32_t index, const WidePass& pass) {
  const model::Config& config = model_->config();
  const model::LayerWeights& tensors = model_->weights().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t F = config.F_expert, d = widths_.d, experts = config.experts;
  WgmmaProduct product;
  product.offsets = wide_.expert_offsets;
  product.groups = experts;
  product.total = pass.rows * config.experts_used;

  if (packed_expert_gate_up(tensors)) {
    for (const ExpertRows* rows : {&weights.expert_gate, &weights.expert_up}) {
      product.parts.push_back({.weights = rows->weights, .rows = F, .stride = rows->stride, .offset = rows->offset});
    }
  } else {
    WgmmaPart part = wgmma_bf16(expert_gate_up_bf16(index), experts, 2 * F, d);
    part.rows = F;
    product.parts.push_back(part);
    part.offset = F;
    product.parts.push_back(part);
  }
  product.geglu = true;
  product.a = wide_.expert_in;
  product.source = wide_.expert_source;
  product.out = wide_.expert_act;
  wgmma_product(product, gpu_.sm_count, how());
  mark(Step::kExpertsUp, index, pass);

  if (packed_expert_down(tensors)) {
    product.parts = {{.weights = weights.expert_down, .rows = d, .stride = d}};
  } else {
    product.parts = {wgmma_bf16(weights_bf16({weights.expert_down}, weights.experts_down_bf16), experts, d, F)};
  }
  product.geglu = false;
  product.a = wide_.expert_act;
  product.source = nullptr;
  product.out = wide_.expert_out;
  wgmma_product(product, gpu_.sm_count, how());
}

// The same by the kernel for every card.
void CudaExecutor::experts_by_mma(uint32_t index, const WidePass& pass) {
  const model::Config& config = model_->config();
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t F = config.F_expert, total = pass.rows * config.experts_used;
  grouped_gemm(wide_.expert_in, wide_.expert_source, expert_gate_up_bf16(index), wide_.expert_offsets, config.experts,
               total, 2 * F, widths_.d, wide_.expert_gate_up, how());
  geglu(wide_.expert_gate_up, total, F, wide_.expert_act, how());
  mark(Step::kExpertsUp, index, pass);
  grouped_gemm(wide_.expert_act, nullptr, weights_bf16({weights.expert_down}, weights.experts_down_bf16),
               wide_.expert_offsets, config.experts, total, widths_.d, F, wide_.expert_out, how());
}

// [experts, 2 F, d]: the gate rows of an expert, then its up rows.
const __nv_bfloat16* CudaExecutor::expert_gate_up_bf16(uint32_t index) {
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t F = model_->config().F_expert;
  std::vector<PackedView> parts;
  for (uint32_t e = 0; weights.experts_gate_up_bf16 == nullptr && e < model_->config().experts; ++e) {
    for (const ExpertRows* rows : {&weights.expert_gate, &weights.expert_up}) {
      parts.push_back(packed_rows(rows->weights, uint64_t{e} * rows->stride + rows->offset, F));
    }
  }
  return weights_bf16(parts, weights.experts_gate_up_bf16);
}

}  // namespace carat::cuda
