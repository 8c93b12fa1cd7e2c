// Products of prompt chunks by warpgroups (sm_90), and those of experts by either kernel.
#include <algorithm>

#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

namespace carat::cuda {

// Parts [first, last) of a group by the library.
void CudaExecutor::product_by_library(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                                      __nv_bfloat16* out, uint32_t rows) {
  const uint32_t before = group.rows_before(first), columns = group.rows_before(last) - before;
  if (group.path == ProductPath::kFp8) {
    const Fp8Matrix weights{group.fp8.values + uint64_t{before} * group.cols(), group.fp8.scales + before};
    gemm_.run(fp8_.rows, weights, out, rows, columns, group.cols(), stream_.get());
  } else {
    gemm_.run(a, bf16_of(group, first, last), out, rows, columns, group.cols(), stream_.get());
  }
}

// The same by integer products. Neighbours of the same packing in one launch.
void CudaExecutor::product_by_mmq(const MatrixGroup& group, size_t first, size_t last, __nv_bfloat16* out,
                                  uint32_t rows) {
  MmqJob job{.x = mmq_rows(), .rows = rows, .out = out};
  job.leading = group.rows_before(last) - group.rows_before(first);
  uint32_t column = 0;
  for (size_t p = first; p < last; ++p) {
    job.part[job.parts++] = {group.parts[p], column};
    column += group.parts[p].rows;
    if (p + 1 < last && job.parts < kMmqParts && group.parts[p + 1].packing == group.parts[p].packing) continue;
    mmq(job, gpu_.sm_count, launch_config());
    job.parts = 0;
  }
}

// The same by warpgroup products. Neighbours of the same packing in one launch; their results stand side by side in
// `out`.
void CudaExecutor::product_by_warpgroups(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                                         __nv_bfloat16* out, uint32_t rows) {
  WgmmaGemm product;
  product.a = a;
  product.total = rows;
  product.leading = group.rows_before(last) - group.rows_before(first);
  uint32_t column = 0;
  for (size_t p = first; p < last; ++p) {
    if (product.parts.empty()) product.out = out + column;
    product.parts.push_back({.weights = group.parts[p], .rows = group.parts[p].rows});
    column += group.parts[p].rows;
    if (p + 1 < last && product.parts.size() < kWgmmaMaxParts && group.parts[p + 1].packing == group.parts[p].packing) {
      continue;
    }
    wgmma_gemm(product, gpu_.sm_count, launch_config());
    product.parts.clear();
  }
}

// out = gelu(gate) * up in one launch.
void CudaExecutor::gate_up_by_warpgroups(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out,
                                         uint32_t rows) {
  WgmmaGemm product;
  for (const PackedView& part : group.parts) product.parts.push_back({.weights = part, .rows = part.rows});
  product.geglu = true;
  product.a = a;
  product.total = rows;
  product.out = out;
  wgmma_gemm(product, gpu_.sm_count, launch_config());
}

// Rows sorted by expert: gate and up with GELU, then down. Weights as they are packed, or their bf16 copies (resident
// or unpacked now) where the kernel cannot read the packing.
void CudaExecutor::experts_by_warpgroups(uint32_t index, const PromptPass& pass) {
  const model::Config& config = model_->config();
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t F = config.F_expert, d = widths_.d, experts = config.experts;
  WgmmaGemm product;
  product.offsets = prompt_buffers_.expert_offsets;
  product.groups = experts;
  product.total = pass.rows * config.experts_used;

  const MatrixGroup& down = weights[GroupKind::kExpertDown];
  if (weights[GroupKind::kExpertGateUp].path == ProductPath::kWgmma) {
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
  product.a = prompt_buffers_.expert_in;
  product.source = prompt_buffers_.expert_source;
  product.out = prompt_buffers_.expert_act;
  wgmma_gemm(product, gpu_.sm_count, launch_config());
  mark(Step::kExpertsUp, index, pass);

  if (down.path == ProductPath::kWgmma) {
    product.parts = {{.weights = down.parts.front(), .rows = d, .stride = d}};
  } else {
    product.parts = {wgmma_bf16(bf16_of(down, 0, 1), experts, d, F)};
  }
  product.geglu = false;
  product.a = prompt_buffers_.expert_act;
  product.source = nullptr;
  product.out = prompt_buffers_.expert_out;
  wgmma_gemm(product, gpu_.sm_count, launch_config());
}

// The same by the kernel for every card.
void CudaExecutor::experts_by_mma(uint32_t index, const PromptPass& pass) {
  const model::Config& config = model_->config();
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t F = config.F_expert, total = pass.rows * config.experts_used;
  grouped_gemm(prompt_buffers_.expert_in, prompt_buffers_.expert_source, expert_gate_up_bf16(index),
               prompt_buffers_.expert_offsets, config.experts, total, 2 * F, widths_.d, prompt_buffers_.expert_gate_up,
               launch_config());
  geglu(prompt_buffers_.expert_gate_up, total, F, prompt_buffers_.expert_act, launch_config());
  mark(Step::kExpertsUp, index, pass);
  grouped_gemm(prompt_buffers_.expert_act, nullptr, bf16_of(weights[GroupKind::kExpertDown], 0, 1),
               prompt_buffers_.expert_offsets, config.experts, total, widths_.d, F, prompt_buffers_.expert_out,
               launch_config());
}

// [experts, 2 F, d]: the gate rows of an expert, then its up rows.
const __nv_bfloat16* CudaExecutor::expert_gate_up_bf16(uint32_t index) {
  const DeviceLayer& weights = weights_.layers[index];
  const MatrixGroup& group = weights[GroupKind::kExpertGateUp];
  if (group.path == ProductPath::kBf16) return group.bf16;
  const uint32_t F = model_->config().F_expert;
  std::vector<PackedView> parts;
  for (uint32_t e = 0; e < model_->config().experts; ++e) {
    for (const ExpertRows* rows : {&weights.expert_gate, &weights.expert_up}) {
      parts.push_back(packed_rows(rows->weights, uint64_t{e} * rows->stride + rows->offset, F));
    }
  }
  return unpack(parts);
}

}  // namespace carat::cuda
