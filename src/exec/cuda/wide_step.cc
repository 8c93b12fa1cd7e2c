// Decode steps by matrix products: many sequences with one row each, all of which want logits. As in the other decode
// passes a step is a replay of one graph per bucket of rows: its launches would take longer than the GPU does.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/attention_step.h"
#include "exec/cuda/kernels/batch_rows.h"
#include "exec/cuda/kernels/ple_step.h"

namespace carat::cuda {

bool CudaExecutor::of_different_sequences(std::span<const exec::Row> rows) {
  std::set<uint32_t> seen;
  return std::all_of(rows.begin(), rows.end(), [&](const exec::Row& row) { return seen.insert(row.sequence).second; });
}

// The bucket of a decode step; 0: the pass is something else, or a bucket of its size has no room.
uint32_t CudaExecutor::wide_step_bucket(std::span<const exec::Row> rows) const {
  if (cpu_layers_ != nullptr || plan_.sparse || !of_different_sequences(rows)) return 0;
  if (!std::all_of(rows.begin(), rows.end(), [](const exec::Row& row) { return row.wants_logits; })) return 0;
  const uint32_t bucket = decode_bucket(static_cast<uint32_t>(rows.size()));
  return bucket <= std::min(plan_.outputs, plan_.chunk) ? bucket : 0;
}

void CudaExecutor::run_wide_step(std::span<const exec::Row> rows, uint32_t bucket) {
  std::vector<exec::Row> padded(rows.begin(), rows.end());
  padded.resize(bucket, {0, 0, plan_.sequences, true});  // each at the first position of the spare sequence
  WidePass pass = stage_wide(padded, widths_.L);
  pass.single_rows = true;
  CARAT_CHECK(pass.tiles_sliding == 0 && pass.tiles_global == 0);
  control_.as<DecodeControl>()->k = wanted_k_;
  output_count_ = bucket;
  run_step(wide_graphs_[bucket], [&] { wide_step(pass); });
  output_count_ = static_cast<uint32_t>(rows.size());
  selected_k_ = wanted_k_;
}

// Heads and attention in one kernel: no row reads what another one adds to the cache.
void CudaExecutor::wide_step_attention(uint32_t index, const WidePass& pass) {
  const AttentionShape shape = shape_of(model_->config().layers[index]);
  attention_step(qkv_post_job(index, pass.arrays, true), wide_.qkv, pass.rows, wide_.attention,
                 attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count), out_.attention_partial,
                 out_.attention_counters, how());
}

// Per-layer embeddings and the norms around them in one kernel, which ends with the input of the next layer or of the
// head.
void CudaExecutor::wide_layer_end(uint32_t index, WidePass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  PleStep<__nv_bfloat16> job{.residual = pass.pending,
                             .gate = weights.inp_gate.parts.front(),
                             .proj = weights.proj.parts.front(),
                             .factors = wide_.ple + uint64_t{index} * widths_.P,
                             .factors_leading = pass.slices * widths_.P,
                             .post_norm = weights.post_norm};
  job.residual.x_out = wide_.x;
  job.residual.scale = weights.output_scale;
  job.residual.next_norm = norm_after(index);
  ple_step(job, pass.rows, index + 1 < widths_.L ? wide_.normed : out_.normed, how());
  mark(Step::kPleProject, index, pass);
  pass.pending = {.x = wide_.x, .eps = model_->config().eps, .d = widths_.d};
  pass.normalised = true;
}

// Everything of one step but the results' way back: runs eagerly or under capture.
void CudaExecutor::wide_step(WidePass pass) {
  upload_decode_control();
  wide_layers(pass, widths_.L);
  const Launch alone{stream_.get(), false};
  if (weights_.head.bf16 == nullptr || pass.rows <= kMatvecRows) {
    finish_wide({}, pass, widths_.L);
    select_best(out_.logits, pass.outputs, widths_.V, &narrow_.control->k, out_.select, results_.tokens,
                results_.values, results_.counts, alone);
  } else {
    // Every row is an output, in order.
    normalise(pass, weights_.output_norm, out_.normed);
    gemm_.run(out_.normed, weights_.head.bf16, out_.logits, pass.rows, widths_.V, widths_.d, stream_.get());
    mark(Step::kHead, 0, pass.outputs, false);
    softcap_and_select(out_.logits, model_->config().softcap, results_.non_finite, pass.outputs, widths_.V,
                       &narrow_.control->k, out_.select, results_.tokens, results_.values, results_.counts, alone);
  }
  mark(Step::kSelect, 0, pass.outputs, true);
}

}  // namespace carat::cuda
