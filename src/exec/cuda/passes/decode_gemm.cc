// Decode steps by matrix products: many sequences with one row each, all of which want logits. As in the other decode
// passes a step is a replay of one graph per bucket of rows: its launches would take longer than the GPU does.
#include <vector>

#include "base/error.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/attention/decode/attention_step.h"
#include "exec/cuda/kernels/ple/ple_step.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"

namespace carat::cuda {

void CudaExecutor::run_decode_gemm(std::span<const exec::Row> rows, const PassClass& shape) {
  const uint32_t bucket = shape.rows;
  std::vector<exec::Row> padded(rows.begin(), rows.end());
  padded.resize(bucket, {0, 0, plan_.sequences, true});  // each at the first position of the spare sequence
  PromptPass pass = stage_prompt_pass(padded, widths_.L);
  pass.single_rows = true;
  CARAT_CHECK(pass.tiles_sliding == 0 && pass.tiles_global == 0);
  control_.as<DecodeControl>()->k = wanted_k_;
  output_count_ = bucket;
  run_step(gemm_step_graphs_[bucket], [&] { gemm_step(pass); });
  output_count_ = shape.outputs;
  selected_k_ = wanted_k_;
}

// Heads and attention in one kernel: no row reads what another one adds to the cache.
void CudaExecutor::gemm_step_attention(uint32_t index, const PromptPass& pass) {
  const AttentionShape shape = shape_of(model_->config().layers[index]);
  attention_step(qkv_post_job(index, pass.arrays, true), prompt_buffers_.qkv, pass.rows, prompt_buffers_.attention,
                 attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count), out_.attention_partial,
                 out_.attention_counters, launch_config());
}

// Per-layer embeddings and the norms around them in one kernel, which ends with the input of the next layer or of the
// head.
void CudaExecutor::prompt_layer_end(uint32_t index, PromptPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  PleStep<__nv_bfloat16> job{.residual = pass.pending,
                             .gate = weights[GroupKind::kPleGate].parts.front(),
                             .proj = weights[GroupKind::kPleProject].parts.front(),
                             .factors = prompt_buffers_.ple + uint64_t{index} * widths_.P,
                             .factors_leading = pass.slices * widths_.P,
                             .post_norm = weights.post_norm};
  job.residual.x_out = prompt_buffers_.x;
  job.residual.scale = weights.output_scale;
  job.residual.next_norm = norm_after(index);
  ple_step(job, pass.rows, index + 1 < widths_.L ? prompt_buffers_.normed : out_.normed, launch_config());
  mark(Step::kPleProject, index, pass);
  pass.pending = {.x = prompt_buffers_.x, .eps = model_->config().eps, .d = widths_.d};
  pass.normalised = true;
}

// Everything of one step but the results' way back: runs eagerly or under capture.
void CudaExecutor::gemm_step(PromptPass pass) {
  upload_decode_control();
  prompt_layers(pass, widths_.L);
  const LaunchConfig alone{stream_.get(), false};
  if (weights_.head.path != ProductPath::kBf16 || pass.rows <= kGemvRows) {
    finish_prompt_pass({}, pass, widths_.L);
    select_best(out_.logits, pass.outputs, widths_.V, &gemv_buffers_.control->k, out_.select, results_.tokens,
                results_.values, results_.counts, alone);
  } else {
    // Every row is an output, in order.
    normalise(pass, weights_.output_norm, out_.normed);
    gemm_.run(out_.normed, weights_.head.bf16, out_.logits, pass.rows, widths_.V, widths_.d, stream_.get());
    mark(Step::kHead, 0, pass.outputs, false);
    softcap_and_select(out_.logits, model_->config().softcap, results_.non_finite, pass.outputs, widths_.V,
                       &gemv_buffers_.control->k, out_.select, results_.tokens, results_.values, results_.counts,
                       alone);
  }
  mark(Step::kSelect, 0, pass.outputs, true);
}

}  // namespace carat::cuda
