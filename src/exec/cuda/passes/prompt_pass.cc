// Prompt chunks: many rows at once, weights as bf16 operands of matrix products, activations in bf16 between kernels
// and the residual stream in fp32.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse.h"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/elementwise/norm.h"
#include "exec/cuda/kernels/gemm/fp8_rows.h"
#include "exec/cuda/kernels/mmq/mmq.h"
#include "exec/cuda/kernels/ple/ple_fetch.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

// Parts [first, last) of a group as bf16, one after the other: of the copy there is, or unpacked now.
const __nv_bfloat16* CudaExecutor::bf16_of(const MatrixGroup& group, size_t first, size_t last) {
  if (group.path == ProductPath::kBf16) return group.bf16 + uint64_t{group.rows_before(first)} * group.cols();
  return unpack({group.parts.data() + first, last - first});
}

const __nv_bfloat16* CudaExecutor::unpack(std::span<const PackedView> parts) {
  __nv_bfloat16* next = unpacked_;
  uint64_t bytes = 0;
  for (const PackedView& part : parts) {
    unpack_bf16(part, next, part.cols, stream_.get());
    next += uint64_t{part.rows} * part.cols;
    bytes += packed_matrix_bytes(part.packing, part.rows, part.cols) + uint64_t{part.rows} * part.cols * 2;
  }
  mark(Step::kUnpack, 0, bytes, false);
  return unpacked_;
}

MmqRows CudaExecutor::mmq_rows() const { return {plan_.gemm.activations, mmq_.quants, mmq_.scales, mmq_.sums}; }

void CudaExecutor::round_for(const MatrixGroup& readers, const __nv_bfloat16* values, uint32_t rows) {
  if (readers.path == ProductPath::kFp8) round_fp8(values, rows, readers.cols(), fp8_.rows, launch_config());
  if (readers.path == ProductPath::kMmq) quantise_mmq(values, rows, readers.cols(), mmq_rows(), launch_config());
}

// Parts [first, last) of a group: the others' results are not wanted. `a` is not read where mmq or e4m3 products do it;
// whatever made the input has rounded it for them.
void CudaExecutor::product(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                           __nv_bfloat16* out, uint32_t rows) {
  switch (group.path) {
    case ProductPath::kFp8:
    case ProductPath::kBf16:
    case ProductPath::kUnpack:
      return product_by_library(group, first, last, a, out, rows);
    case ProductPath::kWgmma:
      return product_by_warpgroups(group, first, last, a, out, rows);
    case ProductPath::kMmq:
      return product_by_mmq(group, first, last, out, rows);
    case ProductPath::kGemv:
    case ProductPath::kFp32:
      break;
  }
  CARAT_CHECK(false && "the LM head and routers are multiplied by code of their own");
}

void CudaExecutor::product(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows) {
  product(group, 0, group.parts.size(), a, out, rows);
}

// Brings a staged pass to the first layer.
void CudaExecutor::enter_prompt_pass(PromptPass& pass) {
  check(cudaMemcpyAsync(prompt_buffers_.control, staging_.data(), pass.control_bytes, cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading rows");
  mark(Step::kUpload, 0, pass);
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, pass.arrays.tokens, pass.rows, root_d, prompt_buffers_.x, widths_.d, stream_.get(),
              false);
  make_rope_tables(pass.arrays, pass.rows);
  pass.pending = {.x = prompt_buffers_.x, .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, pass);
  if (widths_.P > 0) prompt_ple_input(pass);
}

// The per-layer embeddings of all layers the rows will pass.
void CudaExecutor::prompt_ple_input(PromptPass& pass) {
  const uint32_t columns = pass.slices * widths_.P;
  PleJob ple{.table = weights_.ple_table,
             .tokens = pass.arrays.tokens,
             .norm = weights_.ple_norm,
             .slices = pass.slices,
             .P = widths_.P,
             .projection_scale = 1.0f / std::sqrt(static_cast<float>(widths_.d)),
             .table_scale = std::sqrt(static_cast<float>(widths_.P)),
             .eps = model_->config().eps};
  if (plan_.ple_cache_rows > 0) {
    fetch_ple_rows(weights_.ple_table, pass.control.ple_fetches, pass.rows, columns, ple_cache_rows_, launch_config());
    ple.table = ple_cache_rows_;
    ple.tokens = pass.control.ple_places;
  }
  to_bf16(prompt_buffers_.x, uint64_t{pass.rows} * widths_.d, prompt_buffers_.normed, launch_config());
  gemm_.run(prompt_buffers_.normed, bf16_of(weights_.ple_projection, 0, 1), prompt_buffers_.ple_projection, pass.rows,
            columns, widths_.d, stream_.get());
  combine_ple(ple, prompt_buffers_.ple_projection, pass.rows, prompt_buffers_.ple, launch_config());
  mark(Step::kPleInput, pass.slices, pass);
}

// Absorbs what is pending into the residual stream; `kernel` launches what does it.
template <typename Kernel>
void CudaExecutor::absorb(PromptPass& pass, const float* next_norm, const Kernel& kernel) {
  PromptResidual residual = pass.pending;
  residual.next_norm = next_norm;
  residual.x_out = residual.delta == nullptr ? nullptr : prompt_buffers_.x;
  kernel(residual);
  mark(Step::kNorm, 0, pass);
  pass.pending = {.x = prompt_buffers_.x, .eps = model_->config().eps, .d = widths_.d};
}

// Hands out the norm of the residual stream as bf16.
void CudaExecutor::normalise(PromptPass& pass, const float* next_norm, __nv_bfloat16* out) {
  if (pass.normalised) {
    pass.normalised = false;
    return;
  }
  absorb(pass, next_norm,
         [&](const PromptResidual& residual) { residual_norm_bf16(residual, pass.rows, out, launch_config()); });
}

// The same for the products of a group: rounded as they read it.
void CudaExecutor::normalise(PromptPass& pass, const float* next_norm, const MatrixGroup& readers) {
  const bool fp8 = readers.path == ProductPath::kFp8;
  if (fp8 && pass.normalised) {
    pass.normalised = false;
    return round_for(readers, prompt_buffers_.normed, pass.rows);
  }
  if (fp8) {
    return absorb(pass, next_norm, [&](const PromptResidual& residual) {
      residual_norm_fp8(residual, pass.rows, fp8_.rows, launch_config());
    });
  }
  if (readers.path != ProductPath::kMmq) return normalise(pass, next_norm, prompt_buffers_.normed);
  absorb(pass, next_norm,
         [&](const PromptResidual& residual) { residual_norm_mmq(residual, pass.rows, mmq_rows(), launch_config()); });
}

void CudaExecutor::prompt_keys_values(uint32_t index, PromptPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights[GroupKind::kQkv]);
  product(weights[GroupKind::kQkv], 1, weights[GroupKind::kQkv].parts.size(), prompt_buffers_.normed,
          prompt_buffers_.qkv, pass.rows);
  mark(Step::kKeysValues, index, pass);
  QkvPost post = qkv_post_job(index, pass.arrays, true);
  post.only_kv = true;
  qkv_post(post, prompt_buffers_.qkv, pass.rows, launch_config());
  mark(Step::kHeads, index, pass);
}

// Sequence by sequence: the mean keys of one at a time are kept.
void CudaExecutor::sparse_attention(const AttentionShape& shape, const KvView& kv, const PromptPass& pass) {
  const SparseScratch scratch{sparse_.pooled, sparse_.blocks, sparse_.counts, sparse_.pooled_blocks,
                              sparse_.list_length};
  for (const TileRun& run : pass.global_runs) {
    const Segment* tiles = pass.control.tiles_global + run.first;
    if (run.end <= plan_.sparse->from) {
      attention_prefill(shape, prompt_buffers_.q, kv, tiles, run.count, prompt_buffers_.attention,
                        plan_.attention_shared_memory, launch_config());
    } else {
      attention_prefill_sparse(shape, *plan_.sparse, prompt_buffers_.q, kv, tiles, run.count, run.sequence, run.end,
                               scratch, prompt_buffers_.attention, launch_config());
    }
  }
}

void CudaExecutor::prompt_attention(uint32_t index, const PromptPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const AttentionShape shape = shape_of(layer);
  const uint32_t tiles = layer.sliding ? pass.tiles_sliding : pass.tiles_global;
  if (tiles > 0 && !layer.sliding && plan_.sparse) {
    sparse_attention(shape, kv_of(index), pass);
    return;
  }
  const Segment* of_tiles = layer.sliding ? pass.control.tiles_sliding : pass.control.tiles_global;
  if (tiles > 0 && attention_by_warpgroups(plan_, shape)) {
    attention_prefill_wgmma({shape, prompt_buffers_.q, kv_of(index), of_tiles, tiles, prompt_buffers_.attention},
                            launch_config());
    return;
  }
  if (tiles > 0) {
    attention_prefill(shape, prompt_buffers_.q, kv_of(index), of_tiles, tiles, prompt_buffers_.attention,
                      plan_.attention_shared_memory, launch_config());
    return;
  }
  attention_decode(shape, prompt_buffers_.q, kv_of(index), pass.arrays.positions, pass.arrays.sequences, pass.rows,
                   prompt_buffers_.attention, attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count),
                   out_.attention_partial, out_.attention_counters, launch_config());
}

void CudaExecutor::prompt_layer(uint32_t index, PromptPass& pass, bool write_kv) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights[GroupKind::kQkv]);
  product(weights[GroupKind::kQkv], 0, write_kv ? weights[GroupKind::kQkv].parts.size() : 1, prompt_buffers_.normed,
          prompt_buffers_.qkv, pass.rows);
  mark(write_kv ? Step::kQkv : Step::kQueries, index, pass);
  if (plan_.step_heads && pass.single_rows) {
    gemm_step_attention(index, pass);
  } else {
    QkvPost post = qkv_post_job(index, pass.arrays, write_kv);
    post.q = prompt_buffers_.q;
    qkv_post(post, prompt_buffers_.qkv, pass.rows, launch_config());
    mark(Step::kHeads, index, pass);
    prompt_attention(index, pass);
  }
  mark(Step::kAttention, index, pass);
  round_for(weights[GroupKind::kAttentionOutput], prompt_buffers_.attention, pass.rows);
  product(weights[GroupKind::kAttentionOutput], prompt_buffers_.attention, prompt_buffers_.delta, pass.rows);
  mark(Step::kAttentionOutput, index, pass);
  pass.pending.delta = prompt_buffers_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;
  prompt_feed_forward(index, pass);
  if (plan_.cluster_ple && pass.single_rows) return prompt_layer_end(index, pass);
  if (widths_.P > 0) prompt_ple(index, pass);
  pass.pending.scale = weights.output_scale;
}

void CudaExecutor::prompt_feed_forward(uint32_t index, PromptPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const MatrixGroup &gate_up = weights[GroupKind::kGateUp], &down = weights[GroupKind::kDown];
  normalise(pass, weights.ffn_norm, gate_up);
  if (gate_up.path == ProductPath::kWgmma && gate_up.parts[0].packing == gate_up.parts[1].packing) {
    gate_up_by_warpgroups(gate_up, prompt_buffers_.normed, prompt_buffers_.act, pass.rows);
    round_for(down, prompt_buffers_.act, pass.rows);
  } else {
    product(gate_up, prompt_buffers_.normed, prompt_buffers_.gate_up, pass.rows);
    if (down.path == ProductPath::kFp8) {
      geglu_fp8(prompt_buffers_.gate_up, pass.rows, layer.F, fp8_.rows, launch_config());
    } else if (down.path == ProductPath::kMmq) {
      geglu_mmq(prompt_buffers_.gate_up, pass.rows, layer.F, mmq_rows(), launch_config());
    } else {
      geglu(prompt_buffers_.gate_up, pass.rows, layer.F, prompt_buffers_.act, launch_config());
    }
  }
  mark(Step::kGateUp, index, pass);
  product(down, prompt_buffers_.act, prompt_buffers_.delta, pass.rows);
  mark(Step::kDown, index, pass);
  if (layer.moe) prompt_experts(index, pass);
  pass.pending.delta = prompt_buffers_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
}

void CudaExecutor::prompt_experts(uint32_t index, PromptPass& pass) {
  const model::Config& config = model_->config();
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t used = config.experts_used;
  PromptResidual stream = pass.pending;
  stream.next_norm = weights.router_scale;
  residual_norm_float(stream, pass.rows, prompt_buffers_.router_in, launch_config());
  stream.next_norm = weights.pre_ffw_norm_2;
  residual_norm_bf16(stream, pass.rows, prompt_buffers_.expert_in, launch_config());
  gemm_.run(prompt_buffers_.router_in, weights.router, prompt_buffers_.router_logits, pass.rows, config.experts,
            widths_.d, stream_.get());
  moe_route(prompt_buffers_.router_logits, weights.expert_scale, pass.rows, config.experts, used,
            prompt_buffers_.expert_ids, prompt_buffers_.expert_weights, launch_config());
  moe_sort(prompt_buffers_.expert_ids, pass.rows, used, config.experts, prompt_buffers_.expert_offsets,
           prompt_buffers_.expert_source, prompt_buffers_.expert_place, launch_config());
  mark(Step::kRouter, index, pass);

  if (plan_.warpgroup_experts) {
    experts_by_warpgroups(index, pass);
  } else {
    experts_by_mma(index, pass);
  }
  moe_combine(prompt_buffers_.expert_out, prompt_buffers_.expert_place, prompt_buffers_.expert_weights, pass.rows, used,
              widths_.d, prompt_buffers_.experts, launch_config());
  mark(Step::kExpertsDown, index, pass);
  pass.pending.dense_norm = weights.post_ffw_norm_1;
  pass.pending.experts = prompt_buffers_.experts;
  pass.pending.experts_norm = weights.post_ffw_norm_2;
}

void CudaExecutor::prompt_ple(uint32_t index, PromptPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, nullptr, weights[GroupKind::kPleGate]);
  product(weights[GroupKind::kPleGate], prompt_buffers_.normed, prompt_buffers_.ple_gate, pass.rows);
  const float* factors = prompt_buffers_.ple + uint64_t{index} * widths_.P;
  if (weights[GroupKind::kPleProject].path == ProductPath::kMmq) {
    gelu_times_mmq(prompt_buffers_.ple_gate, factors, pass.slices * widths_.P, pass.rows, widths_.P, mmq_rows(),
                   launch_config());
  } else {
    gelu_times(prompt_buffers_.ple_gate, factors, pass.slices * widths_.P, pass.rows, widths_.P,
               prompt_buffers_.ple_act, launch_config());
  }
  mark(Step::kPleGate, index, pass);
  product(weights[GroupKind::kPleProject], prompt_buffers_.ple_act, prompt_buffers_.delta, pass.rows);
  mark(Step::kPleProject, index, pass);
  pass.pending.delta = prompt_buffers_.delta;
  pass.pending.delta_norm = weights.post_norm;
}

// The layer at which rows that want no logits are done, because the last layer that owns keys and values has theirs;
// L where all rows go on.
uint32_t CudaExecutor::prompt_stop(std::span<const exec::Row> rows, const PassClass& shape) const {
  const bool stops = options_.kv_share_shortcut && shape.outputs < rows.size();
  return stops ? model_->config().n_kv - 1 : widths_.L;
}

void CudaExecutor::run_prompt(std::span<const exec::Row> rows, const PassClass& shape) {
  std::vector<exec::Row> wanting;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(wanting),
               [](const exec::Row& r) { return r.wants_logits; });
  output_count_ = shape.outputs;
  const uint32_t stop = prompt_stop(rows, shape);
  PromptPass pass = stage_prompt_pass(rows, std::min(stop + 1, widths_.L));
  prompt_layers(pass, stop);
  if (wanting.empty()) return;
  if (continues_by_gemv(output_count_, stop)) {
    fill_control(wanting, output_count_);
    upload_decode_control();
  }
  finish_prompt_pass(wanting, pass, stop);
}

// All rows through the layers before `stop`, and the keys and values of that one.
void CudaExecutor::prompt_layers(PromptPass& pass, uint32_t stop) {
  enter_prompt_pass(pass);
  if (cpu_layers_ != nullptr) {
    check(cudaMemcpyAsync(prompt_buffers_.x, entering_.data(), uint64_t{pass.rows} * widths_.d * sizeof(float),
                          cudaMemcpyHostToDevice, stream_.get()),
          "uploading what the layers on the CPU handed over");
    mark(Step::kUpload, 0, pass);
  }
  for (uint32_t i = layers_on_cpu(); i < stop; ++i) {
    check_cancelled();
    prompt_layer(i, pass, true);
  }
  if (stop < widths_.L) prompt_keys_values(stop, pass);
}

bool CudaExecutor::continues_by_gemv(uint32_t outputs, uint32_t stopped_at) const {
  return stopped_at < widths_.L && outputs <= kGemvRows && plan_.use_gemv;
}

void CudaExecutor::upload_decode_control() {
  check(cudaMemcpyAsync(gemv_buffers_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading rows");
}

// From the state all rows reached to the logits of the rows that want them. Where those go on narrow, the decode
// control says which they are.
void CudaExecutor::finish_prompt_pass(std::span<const exec::Row> wanting, PromptPass& pass, uint32_t stopped_at) {
  if (pass.pending.delta != nullptr) normalise(pass, nullptr, nullptr);
  const uint32_t count = pass.outputs;
  const auto collect = [&](float* to) {
    gather_float_rows(prompt_buffers_.x, pass.control.outputs, count, widths_.d, to,
                      LaunchConfig{stream_.get(), false});
    mark(Step::kUpload, 0, count, false);
  };
  if (continues_by_gemv(count, stopped_at)) {
    GemvPass narrow = begin_gemv_pass(count);
    collect(gemv_buffers_.x[0]);
    for (uint32_t i = stopped_at; i < widths_.L; ++i) gemv_layer(i, narrow, i != stopped_at);
    gemv_head(narrow);
    return;
  }
  collect(out_.hidden);
  if (stopped_at == widths_.L) return head_from_hidden();
  stream_.synchronise();  // the staging memory is free again
  PromptPass rest = stage_prompt_pass(wanting, widths_.L);
  rest.tiles_sliding = rest.tiles_global = 0;
  enter_prompt_pass(rest);
  check(cudaMemcpyAsync(prompt_buffers_.x, out_.hidden, uint64_t{count} * widths_.d * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream_.get()),
        "collecting outputs");
  for (uint32_t i = stopped_at; i < widths_.L; ++i) prompt_layer(i, rest, i != stopped_at);
  normalise(rest, nullptr, nullptr);
  check(cudaMemcpyAsync(out_.hidden, prompt_buffers_.x, uint64_t{count} * widths_.d * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream_.get()),
        "collecting outputs");
  head_from_hidden();
}

// Final norm, LM head and soft-cap of the hidden states of all outputs.
void CudaExecutor::head_from_hidden() {
  const model::Config& config = model_->config();
  if (weights_.head.path == ProductPath::kBf16 && output_count_ > kGemvRows) {
    const PromptResidual residual{
        .x = out_.hidden, .next_norm = weights_.output_norm, .eps = config.eps, .d = widths_.d};
    residual_norm_bf16(residual, output_count_, out_.normed, LaunchConfig{stream_.get(), false});
    gemm_.run(out_.normed, weights_.head.bf16, out_.logits, output_count_, widths_.V, widths_.d, stream_.get());
    softcap(out_.logits, output_count_, widths_.V, config.softcap, results_.non_finite,
            LaunchConfig{stream_.get(), false});
    mark(Step::kHead, 0, output_count_, false);
    return;
  }
  for (uint32_t first = 0; first < output_count_; first += kGemvRows) {
    GemvJob head;
    head.rows = std::min(kGemvRows, output_count_ - first);
    head.part[0] = {weights_.head.parts.front(), out_.logits + uint64_t{first} * widths_.V, widths_.V};
    head.output = GemvOutput::kSoftcap;
    head.cap = config.softcap;
    head.non_finite = results_.non_finite + first;
    ResidualNorm residual{.x = out_.hidden + uint64_t{first} * widths_.d,
                          .next_norm = weights_.output_norm,
                          .eps = config.eps,
                          .d = widths_.d};
    head.quantised = gemv_buffers_.in;
    quantise_residual_norm(residual, head.rows, head.quantised, LaunchConfig{stream_.get(), false});
    multiply(head);
    mark(Step::kHead, 0, head.rows, true);
  }
}

}  // namespace carat::cuda
