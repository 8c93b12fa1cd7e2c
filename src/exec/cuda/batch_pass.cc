// Batched decode: up to 64 rows that all want logits. Products run on the tensor cores over the packed weights, so that
// a step costs little more than reading them once; residual stream and results stay fp32. A whole step is captured as
// one graph per bucket of rows, as in the narrow pass.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/attention_step.h"
#include "exec/cuda/kernels/batch_product.h"
#include "exec/cuda/kernels/feed_forward.h"
#include "exec/cuda/kernels/norm.h"
#include "exec/cuda/kernels/ple_step.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

// Rows of fp32 that a product rounds itself are read four values at a time.
uint32_t padded4(uint32_t columns) { return (columns + 3) / 4 * 4; }

}  // namespace

bool CudaExecutor::runs_batched(std::span<const exec::Row> rows) const {
  return rows.size() >= plan_.batch_from && rows.size() <= plan_.batch_rows &&
         std::all_of(rows.begin(), rows.end(), [](const exec::Row& row) { return row.wants_logits; });
}

void CudaExecutor::run_batch(std::span<const exec::Row> rows) {
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t bucket = batch_bucket(count);
  fill_rows(*batch_control_.as<BatchControl>(), rows, bucket);
  if (cpu_layers_ != nullptr) {
    // Rows that pad the step to its bucket need finite values of some kind.
    auto* entering = entering_.as<float>();
    for (uint32_t r = count; r < bucket; ++r) std::copy_n(entering, widths_.d, entering + uint64_t{r} * widths_.d);
  }
  output_count_ = count;
  const bool single_rows = of_different_sequences(rows);
  run_step(batch_graphs_[{bucket, single_rows}], [&] { batch_step(bucket, single_rows); });
  selected_k_ = wanted_k_;
}

// Everything of one step but the results' way back: runs eagerly or under capture.
void CudaExecutor::batch_step(uint32_t rows, bool single_rows) {
  BatchPass pass = begin_batch(rows);
  pass.single_rows = single_rows;
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) batch_layer(i, pass);
  BatchJob head;
  head.rows = rows;
  head.part[0] = {weights_.head.parts.front(), out_.logits, widths_.V};
  head.output = MatvecOutput::kSoftcap;
  head.cap = model_->config().softcap;
  head.non_finite = results_.non_finite;
  head.input = normalise(pass, weights_.output_norm, nullptr);
  multiply(head);
  mark(Step::kHead, 0, rows, true);
  select_best(out_.logits, rows, widths_.V, &batch_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, how());
  mark(Step::kSelect, 0, rows, true);
}

// A product of fp32 activations whose results the residual stream absorbs next. largest: of each row, where they may
// exceed fp16.
BatchJob CudaExecutor::to_stream(const MatrixGroup& weights, uint32_t rows, const float* activations, uint32_t leading,
                                 uint32_t* largest) const {
  BatchJob job;
  job.rows = rows;
  job.part[0] = {weights.parts.front(), batch_.delta, widths_.d};
  job.floats = activations;
  job.floats_leading = leading;
  job.floats_largest = largest;
  return job;
}

void CudaExecutor::multiply(const BatchJob& job) {
  const BatchScratch scratch{batch_.partial, BatchBuffers::kPartialFloats, batch_.counters,
                             BatchBuffers::kPartialCounters};
  batch_product(job, scratch, gpu_.sm_count, gpu_.shared_memory, how_in_step());
}

// Absorbs what is pending into the residual stream and hands out its norm as operands. clear: the `largest` of the
// product that follows.
BatchRows CudaExecutor::normalise(BatchPass& pass, const float* next_norm, uint32_t* clear) {
  BatchRows out = batch_.in;
  out.tiles = batch_tiles(pass.rows);
  if (pass.normalised) {
    CARAT_CHECK(clear == nullptr);
    pass.normalised = false;
    return out;
  }
  ResidualNorm residual = pass.pending;
  residual.next_norm = next_norm;
  if (residual.delta != nullptr) {
    pass.buffer ^= 1;
    residual.x_out = batch_.x[pass.buffer];
    pass.pending = {.x = batch_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  }
  batch_residual_norm(residual, pass.rows, out, clear, how_in_step());
  mark(Step::kNorm, 0, pass.rows, true);
  return out;
}

CudaExecutor::BatchPass CudaExecutor::begin_batch(uint32_t rows) {
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  check(cudaMemcpyAsync(batch_.control, batch_control_.data(), sizeof(BatchControl), cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading rows");
  if (cpu_layers_ != nullptr) {
    // Beside the embeddings, which the per-layer inputs are still made from.
    check(cudaMemcpyAsync(batch_.x[1], entering_.data(), uint64_t{rows} * widths_.d * sizeof(float),
                          cudaMemcpyHostToDevice, stream_.get()),
          "uploading what the layers on the CPU handed over");
  }
  mark(Step::kUpload, 0, rows, true);
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, batch_.rows.tokens, rows, root_d, batch_.x[0], widths_.d, stream_.get(), false);
  make_rope_tables(batch_.rows, rows);
  BatchPass pass;
  pass.rows = rows;
  pass.pending = {.x = batch_.x[0], .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, rows, true);
  if (widths_.P > 0) {
    BatchJob job;
    job.rows = rows;
    job.part[0] = {weights_.ple_projection.parts.front(), batch_.ple_projection, widths_.L * widths_.P};
    job.input = normalise(pass, nullptr, nullptr);
    multiply(job);
    const PleJob ple{.table = weights_.ple_table,
                     .tokens = batch_.rows.tokens,
                     .norm = weights_.ple_norm,
                     .slices = widths_.L,
                     .P = widths_.P,
                     .projection_scale = 1.0f / root_d,
                     .table_scale = std::sqrt(static_cast<float>(widths_.P)),
                     .eps = model_->config().eps};
    combine_ple(ple, batch_.ple_projection, rows, batch_.ple, how());
    mark(Step::kPleInput, widths_.L, rows, true);
  }
  if (cpu_layers_ != nullptr) {
    pass.buffer = 1;
    pass.pending.x = batch_.x[1];
  }
  return pass;
}

void CudaExecutor::batch_layer(uint32_t index, BatchPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  batch_attention(index, pass);
  pass.pending.delta = batch_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;
  batch_feed_forward(index, pass);
  pass.pending.delta = batch_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
  if (plan_.cluster_ple) return batch_layer_end(index, pass);
  if (widths_.P > 0) {
    batch_ple(index, pass);
    pass.pending.delta = batch_.delta;
    pass.pending.delta_norm = weights.post_norm;
  }
  pass.pending.scale = weights.output_scale;
}

void CudaExecutor::batch_attention(uint32_t index, BatchPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  BatchJob qkv;
  qkv.rows = pass.rows;
  qkv.parts = static_cast<uint32_t>(weights.qkv.parts.size());
  const uint32_t total = weights.qkv.rows();
  uint32_t offset = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) {
    qkv.part[p] = {weights.qkv.parts[p], batch_.qkv + offset, total};
    offset += weights.qkv.parts[p].rows;
  }
  qkv.input = normalise(pass, weights.attn_norm, nullptr);
  multiply(qkv);
  mark(Step::kQkv, index, pass.rows, true);

  batch_heads(index, pass);
  // Values are normalised before they are cached, so no result exceeds sqrt(hd): fp16 holds them as they are.
  multiply(to_stream(weights.output, pass.rows, batch_.attention, layer.H * layer.hd, nullptr));
  mark(Step::kAttentionOutput, index, pass.rows, true);
}

// From the projections to the results of attention.
void CudaExecutor::batch_heads(uint32_t index, const BatchPass& pass) {
  const AttentionShape shape = shape_of(model_->config().layers[index]);
  const uint32_t splits = attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count);
  QkvPost post = qkv_post_job(index, batch_.rows, true);
  // Where SMs have several blocks, these need all the shared memory there is.
  const bool one_per_sm = pass.rows * shape.Hkv * attention_head_groups(shape) * splits <= gpu_.sm_count;
  const Launch how = one_per_sm ? how_in_step() : this->how();
  if (plan_.step_heads && pass.single_rows) {
    attention_step(post, batch_.qkv, pass.rows, batch_.attention, splits, out_.attention_partial,
                   out_.attention_counters, how);
  } else {
    post.q = batch_.q;
    qkv_post(post, batch_.qkv, pass.rows, how_in_step());
    mark(Step::kHeads, index, pass.rows, true);
    attention_decode(shape, batch_.q, kv_of(index), batch_.rows.positions, batch_.rows.sequences, pass.rows,
                     batch_.attention, splits, out_.attention_partial, out_.attention_counters, how);
  }
  mark(Step::kAttention, index, pass.rows, true);
}

void CudaExecutor::batch_feed_forward(uint32_t index, BatchPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t leading = padded4(layer.F);
  BatchJob gate_up;
  gate_up.rows = pass.rows;
  gate_up.parts = 2;
  gate_up.input = normalise(pass, weights.ffn_norm, batch_.act_largest);
  if (weights.gate_up.parts[0].packing == weights.gate_up.parts[1].packing) {
    gate_up.part[0] = {weights.gate_up.parts[0], batch_.act, leading};
    gate_up.part[1] = {weights.gate_up.parts[1], batch_.act, leading};
    gate_up.output = MatvecOutput::kGeglu;
    gate_up.largest = batch_.act_largest;
    multiply(gate_up);
  } else {
    gate_up.part[0] = {weights.gate_up.parts[0], batch_.gate_up, 2 * layer.F};
    gate_up.part[1] = {weights.gate_up.parts[1], batch_.gate_up + layer.F, 2 * layer.F};
    multiply(gate_up);
    batch_geglu(batch_.gate_up, pass.rows, layer.F, batch_.act, leading, batch_.act_largest, how_in_step());
  }
  mark(Step::kGateUp, index, pass.rows, true);

  multiply(to_stream(weights.down, pass.rows, batch_.act, leading, batch_.act_largest));
  mark(Step::kDown, index, pass.rows, true);
}

void CudaExecutor::batch_ple(uint32_t index, BatchPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t leading = padded4(widths_.P);
  BatchJob gate;
  gate.rows = pass.rows;
  gate.part[0] = {weights.inp_gate.parts.front(), batch_.ple_gate, leading};
  gate.output = MatvecOutput::kGeluTimes;
  gate.largest = batch_.ple_largest;
  gate.factors = batch_.ple + uint64_t{index} * widths_.P;
  gate.factors_leading = widths_.L * widths_.P;
  gate.input = normalise(pass, nullptr, batch_.ple_largest);
  multiply(gate);
  mark(Step::kPleGate, index, pass.rows, true);
  multiply(to_stream(weights.proj, pass.rows, batch_.ple_gate, leading, batch_.ple_largest));
  mark(Step::kPleProject, index, pass.rows, true);
}

// The norm that makes the input of what follows a layer.
const float* CudaExecutor::norm_after(uint32_t index) const {
  return index + 1 < widths_.L ? weights_.layers[index + 1].attn_norm : weights_.output_norm;
}

// For each layer what no value of the input of what follows it exceeds: its norm's weights times sqrt(d).
std::vector<float> CudaExecutor::bounds_after_layers() const {
  std::vector<float> bounds;
  for (uint32_t i = 0; i < widths_.L; ++i) {
    const model::Vector& norm =
        i + 1 < widths_.L ? model_->weights().layers[i + 1].attn_norm : model_->weights().output_norm;
    float largest = 0.0f;
    for (const float weight : norm) largest = std::max(largest, std::fabs(weight));
    bounds.push_back(std::sqrt(static_cast<float>(widths_.d)) * std::max(largest, std::numeric_limits<float>::min()));
  }
  return bounds;
}

// Per-layer embeddings and the norms around them in one kernel.
void CudaExecutor::batch_layer_end(uint32_t index, BatchPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  PleStep<float> job{.residual = pass.pending,
                     .gate = weights.inp_gate.parts.front(),
                     .proj = weights.proj.parts.front(),
                     .factors = batch_.ple + uint64_t{index} * widths_.P,
                     .factors_leading = widths_.L * widths_.P,
                     .post_norm = weights.post_norm,
                     .bound = norm_bounds_[index]};
  pass.buffer ^= 1;
  job.residual.x_out = batch_.x[pass.buffer];
  job.residual.scale = weights.output_scale;
  job.residual.next_norm = norm_after(index);
  BatchRows out = batch_.in;
  out.tiles = batch_tiles(pass.rows);
  ple_step(job, pass.rows, out, how_in_step());
  mark(Step::kPleProject, index, pass.rows, true);
  pass.pending = {.x = batch_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  pass.normalised = true;
}

}  // namespace carat::cuda
