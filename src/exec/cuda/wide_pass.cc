// Prompt chunks: many rows at once, weights as bf16 operands of matrix products, activations in bf16 between kernels
// and the residual stream in fp32.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/attention_sparse.h"
#include "exec/cuda/kernels/attention_wgmma.h"
#include "exec/cuda/kernels/feed_forward.h"
#include "exec/cuda/kernels/fp8_rows.h"
#include "exec/cuda/kernels/mmq.h"
#include "exec/cuda/kernels/norm.h"
#include "exec/cuda/kernels/ple_fetch.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

const __nv_bfloat16* CudaExecutor::weights_bf16(const std::vector<PackedView>& parts, const __nv_bfloat16* resident) {
  if (resident != nullptr) return resident;
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

bool CudaExecutor::by_mmq(const MatrixGroup& group) const {
  return plan_.gemm.kind == GemmKind::kMmq &&
         std::all_of(group.parts.begin(), group.parts.end(),
                     [](const PackedView& part) { return mmq_supports(part.packing); });
}

MmqRows CudaExecutor::mmq_rows() const { return {plan_.gemm.activations, mmq_.quants, mmq_.scales, mmq_.sums}; }

void CudaExecutor::round_for(const MatrixGroup& readers, const __nv_bfloat16* values, uint32_t rows) {
  if (readers.has_fp8()) {
    round_fp8(values, rows, readers.cols(), fp8_.rows, how());
  } else if (by_mmq(readers)) {
    quantise_mmq(values, rows, readers.cols(), mmq_rows(), how());
  }
}

// Parts [first, last) of a group: the others' results are not wanted. `a` is not read where mmq or e4m3 products do it;
// whatever made the input has rounded it for them.
void CudaExecutor::product(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                           __nv_bfloat16* out, uint32_t rows) {
  uint32_t before = 0, columns = 0;
  for (size_t p = 0; p < first; ++p) before += group.parts[p].rows;
  for (size_t p = first; p < last; ++p) columns += group.parts[p].rows;
  if (group.has_fp8()) {
    const Fp8Matrix weights{group.fp8.values + uint64_t{before} * group.cols(), group.fp8.scales + before};
    gemm_.run(fp8_.rows, weights, out, rows, columns, group.cols(), stream_.get());
    return;
  }
  if (dequantises(group)) return product_by_warpgroups(group, first, last, a, out, rows);
  if (!by_mmq(group)) {
    const std::vector<PackedView> parts(group.parts.begin() + static_cast<ptrdiff_t>(first),
                                        group.parts.begin() + static_cast<ptrdiff_t>(last));
    const __nv_bfloat16* resident = group.bf16 == nullptr ? nullptr : group.bf16 + uint64_t{before} * group.cols();
    gemm_.run(a, weights_bf16(parts, resident), out, rows, columns, group.cols(), stream_.get());
    return;
  }
  // Neighbours of the same packing in one launch.
  MmqJob job{.x = mmq_rows(), .rows = rows, .leading = columns, .out = out};
  uint32_t column = 0;
  for (size_t p = first; p < last; ++p) {
    job.part[job.parts++] = {group.parts[p], column};
    column += group.parts[p].rows;
    if (p + 1 < last && job.parts < kMmqParts && group.parts[p + 1].packing == group.parts[p].packing) continue;
    mmq(job, gpu_.sm_count, how());
    job.parts = 0;
  }
}

void CudaExecutor::product(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows) {
  product(group, 0, group.parts.size(), a, out, rows);
}

// Brings a staged pass to the first layer.
void CudaExecutor::enter_wide(WidePass& pass) {
  check(cudaMemcpyAsync(wide_.control, staging_.data(), pass.control_bytes, cudaMemcpyHostToDevice, stream_.get()),
        "uploading rows");
  mark(Step::kUpload, 0, pass);
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, pass.arrays.tokens, pass.rows, root_d, wide_.x, widths_.d, stream_.get(), false);
  make_rope_tables(pass.arrays, pass.rows);
  pass.pending = {.x = wide_.x, .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, pass);
  if (widths_.P > 0) wide_ple_input(pass);
}

// The per-layer embeddings of all layers the rows will pass.
void CudaExecutor::wide_ple_input(WidePass& pass) {
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
    fetch_ple_rows(weights_.ple_table, pass.control.ple_fetches, pass.rows, columns, ple_cache_rows_, how());
    ple.table = ple_cache_rows_;
    ple.tokens = pass.control.ple_places;
  }
  to_bf16(wide_.x, uint64_t{pass.rows} * widths_.d, wide_.normed, how());
  gemm_.run(wide_.normed, weights_bf16(weights_.ple_projection.parts, weights_.ple_projection.bf16),
            wide_.ple_projection, pass.rows, columns, widths_.d, stream_.get());
  combine_ple(ple, wide_.ple_projection, pass.rows, wide_.ple, how());
  mark(Step::kPleInput, pass.slices, pass);
}

// Absorbs what is pending into the residual stream; `kernel` launches what does it.
template <typename Kernel>
void CudaExecutor::absorb(WidePass& pass, const float* next_norm, const Kernel& kernel) {
  WideResidual residual = pass.pending;
  residual.next_norm = next_norm;
  residual.x_out = residual.delta == nullptr ? nullptr : wide_.x;
  kernel(residual);
  mark(Step::kNorm, 0, pass);
  pass.pending = {.x = wide_.x, .eps = model_->config().eps, .d = widths_.d};
}

// Hands out the norm of the residual stream as bf16.
void CudaExecutor::normalise(WidePass& pass, const float* next_norm, __nv_bfloat16* out) {
  if (pass.normalised) {
    pass.normalised = false;
    return;
  }
  absorb(pass, next_norm, [&](const WideResidual& residual) { residual_norm_bf16(residual, pass.rows, out, how()); });
}

// The same for the products of a group: rounded as they read it.
void CudaExecutor::normalise(WidePass& pass, const float* next_norm, const MatrixGroup& readers) {
  if (readers.has_fp8() && pass.normalised) {
    pass.normalised = false;
    return round_for(readers, wide_.normed, pass.rows);
  }
  if (readers.has_fp8()) {
    return absorb(pass, next_norm,
                  [&](const WideResidual& residual) { residual_norm_fp8(residual, pass.rows, fp8_.rows, how()); });
  }
  if (!by_mmq(readers)) return normalise(pass, next_norm, wide_.normed);
  absorb(pass, next_norm,
         [&](const WideResidual& residual) { residual_norm_mmq(residual, pass.rows, mmq_rows(), how()); });
}

void CudaExecutor::wide_keys_values(uint32_t index, WidePass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights.qkv);
  product(weights.qkv, 1, weights.qkv.parts.size(), wide_.normed, wide_.qkv, pass.rows);
  mark(Step::kKeysValues, index, pass);
  QkvPost post = qkv_post_job(index, pass.arrays, true);
  post.only_kv = true;
  qkv_post(post, wide_.qkv, pass.rows, how());
  mark(Step::kHeads, index, pass);
}

// Sequence by sequence: the mean keys of one at a time are kept.
void CudaExecutor::sparse_attention(const AttentionShape& shape, const KvView& kv, const WidePass& pass) {
  const SparseScratch scratch{sparse_.pooled, sparse_.blocks, sparse_.counts, sparse_.pooled_blocks,
                              sparse_.list_length};
  for (const TileRun& run : pass.global_runs) {
    const Segment* tiles = pass.control.tiles_global + run.first;
    if (run.end <= plan_.sparse->from) {
      attention_prefill(shape, wide_.q, kv, tiles, run.count, wide_.attention, plan_.attention_shared_memory, how());
    } else {
      attention_prefill_sparse(shape, *plan_.sparse, wide_.q, kv, tiles, run.count, run.sequence, run.end, scratch,
                               wide_.attention, how());
    }
  }
}

void CudaExecutor::wide_attention(uint32_t index, const WidePass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const AttentionShape shape = shape_of(layer);
  const uint32_t tiles = layer.sliding ? pass.tiles_sliding : pass.tiles_global;
  if (tiles > 0 && !layer.sliding && plan_.sparse) {
    sparse_attention(shape, kv_of(index), pass);
    return;
  }
  const Segment* of_tiles = layer.sliding ? pass.control.tiles_sliding : pass.control.tiles_global;
  if (tiles > 0 && attention_by_warpgroups(plan_, shape)) {
    attention_prefill_wgmma({shape, wide_.q, kv_of(index), of_tiles, tiles, wide_.attention}, how());
    return;
  }
  if (tiles > 0) {
    attention_prefill(shape, wide_.q, kv_of(index), of_tiles, tiles, wide_.attention, plan_.attention_shared_memory,
                      how());
    return;
  }
  attention_decode(shape, wide_.q, kv_of(index), pass.arrays.positions, pass.arrays.sequences, pass.rows,
                   wide_.attention, attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count),
                   out_.attention_partial, out_.attention_counters, how());
}

void CudaExecutor::wide_layer(uint32_t index, WidePass& pass, bool write_kv) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights.qkv);
  product(weights.qkv, 0, write_kv ? weights.qkv.parts.size() : 1, wide_.normed, wide_.qkv, pass.rows);
  mark(write_kv ? Step::kQkv : Step::kQueries, index, pass);
  if (plan_.step_heads && pass.single_rows) {
    wide_step_attention(index, pass);
  } else {
    QkvPost post = qkv_post_job(index, pass.arrays, write_kv);
    post.q = wide_.q;
    qkv_post(post, wide_.qkv, pass.rows, how());
    mark(Step::kHeads, index, pass);
    wide_attention(index, pass);
  }
  mark(Step::kAttention, index, pass);
  round_for(weights.output, wide_.attention, pass.rows);
  product(weights.output, wide_.attention, wide_.delta, pass.rows);
  mark(Step::kAttentionOutput, index, pass);
  pass.pending.delta = wide_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;
  wide_feed_forward(index, pass);
  if (plan_.cluster_ple && pass.single_rows) return wide_layer_end(index, pass);
  if (widths_.P > 0) wide_ple(index, pass);
  pass.pending.scale = weights.output_scale;
}

void CudaExecutor::wide_feed_forward(uint32_t index, WidePass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.ffn_norm, weights.gate_up);
  if (dequantises(weights.gate_up) && weights.gate_up.parts[0].packing == weights.gate_up.parts[1].packing) {
    gate_up_by_warpgroups(weights.gate_up, wide_.normed, wide_.act, pass.rows);
    round_for(weights.down, wide_.act, pass.rows);
  } else {
    product(weights.gate_up, wide_.normed, wide_.gate_up, pass.rows);
    if (weights.down.has_fp8()) {
      geglu_fp8(wide_.gate_up, pass.rows, layer.F, fp8_.rows, how());
    } else if (by_mmq(weights.down)) {
      geglu_mmq(wide_.gate_up, pass.rows, layer.F, mmq_rows(), how());
    } else {
      geglu(wide_.gate_up, pass.rows, layer.F, wide_.act, how());
    }
  }
  mark(Step::kGateUp, index, pass);
  product(weights.down, wide_.act, wide_.delta, pass.rows);
  mark(Step::kDown, index, pass);
  if (layer.moe) wide_experts(index, pass);
  pass.pending.delta = wide_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
}

void CudaExecutor::wide_experts(uint32_t index, WidePass& pass) {
  const model::Config& config = model_->config();
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t used = config.experts_used;
  WideResidual stream = pass.pending;
  stream.next_norm = weights.router_scale;
  residual_norm_float(stream, pass.rows, wide_.router_in, how());
  stream.next_norm = weights.pre_ffw_norm_2;
  residual_norm_bf16(stream, pass.rows, wide_.expert_in, how());
  gemm_.run(wide_.router_in, weights.router, wide_.router_logits, pass.rows, config.experts, widths_.d, stream_.get());
  moe_route(wide_.router_logits, weights.expert_scale, pass.rows, config.experts, used, wide_.expert_ids,
            wide_.expert_weights, how());
  moe_sort(wide_.expert_ids, pass.rows, used, config.experts, wide_.expert_offsets, wide_.expert_source,
           wide_.expert_place, how());
  mark(Step::kRouter, index, pass);

  if (plan_.warpgroup_experts) {
    experts_by_warpgroups(index, pass);
  } else {
    experts_by_mma(index, pass);
  }
  moe_combine(wide_.expert_out, wide_.expert_place, wide_.expert_weights, pass.rows, used, widths_.d, wide_.experts,
              how());
  mark(Step::kExpertsDown, index, pass);
  pass.pending.dense_norm = weights.post_ffw_norm_1;
  pass.pending.experts = wide_.experts;
  pass.pending.experts_norm = weights.post_ffw_norm_2;
}

void CudaExecutor::wide_ple(uint32_t index, WidePass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, nullptr, weights.inp_gate);
  product(weights.inp_gate, wide_.normed, wide_.ple_gate, pass.rows);
  const float* factors = wide_.ple + uint64_t{index} * widths_.P;
  if (by_mmq(weights.proj)) {
    gelu_times_mmq(wide_.ple_gate, factors, pass.slices * widths_.P, pass.rows, widths_.P, mmq_rows(), how());
  } else {
    gelu_times(wide_.ple_gate, factors, pass.slices * widths_.P, pass.rows, widths_.P, wide_.ple_act, how());
  }
  mark(Step::kPleGate, index, pass);
  product(weights.proj, wide_.ple_act, wide_.delta, pass.rows);
  mark(Step::kPleProject, index, pass);
  pass.pending.delta = wide_.delta;
  pass.pending.delta_norm = weights.post_norm;
}

void CudaExecutor::run_wide(std::span<const exec::Row> rows) {
  const model::Config& config = model_->config();
  std::vector<exec::Row> wanting;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(wanting),
               [](const exec::Row& r) { return r.wants_logits; });
  output_count_ = static_cast<uint32_t>(wanting.size());
  // Rows that want no logits are done once the last layer that owns keys and values has theirs.
  const bool stops = options_.kv_share_shortcut && wanting.size() < rows.size();
  const uint32_t stop = stops ? config.n_kv - 1 : config.L;
  if (const uint32_t bucket = bucket_of(rows); bucket > 0) return run_prompt(rows, bucket, stop);
  WidePass pass = stage_wide(rows, stops ? config.n_kv : config.L);
  wide_layers(pass, stop);
  if (wanting.empty()) return;
  if (goes_on_narrow(output_count_, stop)) {
    fill_control(wanting, output_count_);
    upload_decode_control();
  }
  finish_wide(wanting, pass, stop);
}

// All rows through the layers before `stop`, and the keys and values of that one.
void CudaExecutor::wide_layers(WidePass& pass, uint32_t stop) {
  enter_wide(pass);
  if (cpu_layers_ != nullptr) {
    check(cudaMemcpyAsync(wide_.x, entering_.data(), uint64_t{pass.rows} * widths_.d * sizeof(float),
                          cudaMemcpyHostToDevice, stream_.get()),
          "uploading what the layers on the CPU handed over");
    mark(Step::kUpload, 0, pass);
  }
  for (uint32_t i = layers_on_cpu(); i < stop; ++i) {
    check_cancelled();
    wide_layer(i, pass, true);
  }
  if (stop < widths_.L) wide_keys_values(stop, pass);
}

bool CudaExecutor::goes_on_narrow(uint32_t outputs, uint32_t stopped_at) const {
  return stopped_at < widths_.L && outputs <= kMatvecRows && plan_.use_matvec;
}

void CudaExecutor::upload_decode_control() {
  check(cudaMemcpyAsync(narrow_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice, stream_.get()),
        "uploading rows");
}

// From the state all rows reached to the logits of the rows that want them. Where those go on narrow, the decode
// control says which they are.
void CudaExecutor::finish_wide(std::span<const exec::Row> wanting, WidePass& pass, uint32_t stopped_at) {
  if (pass.pending.delta != nullptr) normalise(pass, nullptr, nullptr);
  const uint32_t count = pass.outputs;
  const auto collect = [&](float* to) {
    gather_float_rows(wide_.x, pass.control.outputs, count, widths_.d, to, Launch{stream_.get(), false});
    mark(Step::kUpload, 0, count, false);
  };
  if (goes_on_narrow(count, stopped_at)) {
    NarrowPass narrow = begin_narrow(count);
    collect(narrow_.x[0]);
    for (uint32_t i = stopped_at; i < widths_.L; ++i) narrow_layer(i, narrow, i != stopped_at);
    narrow_head(narrow);
    return;
  }
  collect(out_.hidden);
  if (stopped_at == widths_.L) return head_from_hidden();
  stream_.synchronise();  // the staging memory is free again
  WidePass rest = stage_wide(wanting, widths_.L);
  rest.tiles_sliding = rest.tiles_global = 0;
  enter_wide(rest);
  check(cudaMemcpyAsync(wide_.x, out_.hidden, uint64_t{count} * widths_.d * sizeof(float), cudaMemcpyDeviceToDevice,
                        stream_.get()),
        "collecting outputs");
  for (uint32_t i = stopped_at; i < widths_.L; ++i) wide_layer(i, rest, i != stopped_at);
  normalise(rest, nullptr, nullptr);
  check(cudaMemcpyAsync(out_.hidden, wide_.x, uint64_t{count} * widths_.d * sizeof(float), cudaMemcpyDeviceToDevice,
                        stream_.get()),
        "collecting outputs");
  head_from_hidden();
}

// Final norm, LM head and soft-cap of the hidden states of all outputs.
void CudaExecutor::head_from_hidden() {
  const model::Config& config = model_->config();
  if (weights_.head.bf16 != nullptr && output_count_ > kMatvecRows) {
    const WideResidual residual{.x = out_.hidden, .next_norm = weights_.output_norm, .eps = config.eps, .d = widths_.d};
    residual_norm_bf16(residual, output_count_, out_.normed, Launch{stream_.get(), false});
    gemm_.run(out_.normed, weights_.head.bf16, out_.logits, output_count_, widths_.V, widths_.d, stream_.get());
    softcap(out_.logits, uint64_t{output_count_} * widths_.V, config.softcap, results_.non_finite,
            Launch{stream_.get(), false});
    mark(Step::kHead, 0, output_count_, false);
    return;
  }
  for (uint32_t first = 0; first < output_count_; first += kMatvecRows) {
    MatvecJob head;
    head.rows = std::min(kMatvecRows, output_count_ - first);
    head.part[0] = {weights_.head.parts.front(), out_.logits + uint64_t{first} * widths_.V, widths_.V};
    head.output = MatvecOutput::kSoftcap;
    head.cap = config.softcap;
    head.non_finite = results_.non_finite;
    ResidualNorm residual{.x = out_.hidden + uint64_t{first} * widths_.d,
                          .next_norm = weights_.output_norm,
                          .eps = config.eps,
                          .d = widths_.d};
    head.quantised = narrow_.in;
    quantise_residual_norm(residual, head.rows, head.quantised, Launch{stream_.get(), false});
    multiply(head);
    mark(Step::kHead, 0, head.rows, true);
  }
}

}  // namespace carat::cuda
