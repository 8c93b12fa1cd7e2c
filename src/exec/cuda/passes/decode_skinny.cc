// Batched decode: up to 64 rows that all want logits. Products run on the tensor cores over the packed weights, so that
// a step costs little more than reading them once; residual stream and results stay fp32. A whole step is captured as
// one graph per bucket of rows, as in the narrow pass.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/attention/decode/attention_step.h"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/elementwise/norm.h"
#include "exec/cuda/kernels/ple/ple_step.h"
#include "exec/cuda/kernels/skinny/skinny_gemm.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

// Rows of fp32 that a product rounds itself are read four values at a time.
uint32_t padded4(uint32_t columns) { return (columns + 3) / 4 * 4; }

}  // namespace

void CudaExecutor::run_decode_skinny(std::span<const exec::Row> rows, const PassClass& shape) {
  fill_rows(*skinny_control_.as<SkinnyControl>(), rows, shape.rows);
  output_count_ = shape.outputs;
  run_step(skinny_graphs_[{shape.rows, shape.single_rows}], [&] { skinny_step(shape.rows, shape.single_rows); });
  selected_k_ = wanted_k_;
}

// Everything of one step but the results' way back: runs eagerly or under capture.
void CudaExecutor::skinny_step(uint32_t rows, bool single_rows) {
  SkinnyPass pass = begin_skinny(rows);
  pass.single_rows = single_rows;
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) skinny_layer(i, pass);
  SkinnyJob head;
  head.rows = rows;
  head.part[0] = {weights_.head.parts.front(), out_.logits, widths_.V};
  head.output = GemvOutput::kSoftcap;
  head.cap = model_->config().softcap;
  head.non_finite = results_.non_finite;
  head.input = normalise(pass, weights_.output_norm, nullptr);
  multiply(head);
  mark(Step::kHead, 0, rows, true);
  select_best(out_.logits, rows, widths_.V, &skinny_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, launch_config());
  mark(Step::kSelect, 0, rows, true);
}

// A product of fp32 activations whose results the residual stream absorbs next. largest: of each row, where they may
// exceed fp16.
SkinnyJob CudaExecutor::to_stream(const MatrixGroup& weights, uint32_t rows, const float* activations, uint32_t leading,
                                  uint32_t* largest) const {
  SkinnyJob job;
  job.rows = rows;
  job.part[0] = {weights.parts.front(), skinny_.delta, widths_.d};
  job.floats = activations;
  job.floats_leading = leading;
  job.floats_largest = largest;
  return job;
}

void CudaExecutor::multiply(const SkinnyJob& job) {
  const SkinnyScratch scratch{skinny_.partial, SkinnyBuffers::kPartialFloats, skinny_.counters,
                              SkinnyBuffers::kPartialCounters};
  skinny_gemm(job, scratch, gpu_.sm_count, gpu_.shared_memory, decode_launch_config());
}

// Absorbs what is pending into the residual stream and hands out its norm as operands. clear: the `largest` of the
// product that follows.
SkinnyRows CudaExecutor::normalise(SkinnyPass& pass, const float* next_norm, uint32_t* clear) {
  SkinnyRows out = skinny_.in;
  out.tiles = skinny_tiles(pass.rows);
  if (pass.normalised) {
    CARAT_CHECK(clear == nullptr);
    pass.normalised = false;
    return out;
  }
  ResidualNorm residual = pass.pending;
  residual.next_norm = next_norm;
  if (residual.delta != nullptr) {
    pass.buffer ^= 1;
    residual.x_out = skinny_.x[pass.buffer];
    pass.pending = {.x = skinny_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  }
  skinny_residual_norm(residual, pass.rows, out, clear, decode_launch_config());
  mark(Step::kNorm, 0, pass.rows, true);
  return out;
}

CudaExecutor::SkinnyPass CudaExecutor::begin_skinny(uint32_t rows) {
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  check(cudaMemcpyAsync(skinny_.control, skinny_control_.data(), sizeof(SkinnyControl), cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading rows");
  if (cpu_layers_ != nullptr) {
    // Beside the embeddings, which the per-layer inputs are still made from.
    check(cudaMemcpyAsync(skinny_.x[1], entering_.data(), uint64_t{rows} * widths_.d * sizeof(float),
                          cudaMemcpyHostToDevice, stream_.get()),
          "uploading what the layers on the CPU handed over");
  }
  mark(Step::kUpload, 0, rows, true);
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, skinny_.rows.tokens, rows, root_d, skinny_.x[0], widths_.d, stream_.get(), false);
  make_rope_tables(skinny_.rows, rows);
  SkinnyPass pass;
  pass.rows = rows;
  pass.pending = {.x = skinny_.x[0], .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, rows, true);
  if (widths_.P > 0) {
    SkinnyJob job;
    job.rows = rows;
    job.part[0] = {weights_.ple_projection.parts.front(), skinny_.ple_projection, widths_.L * widths_.P};
    job.input = normalise(pass, nullptr, nullptr);
    multiply(job);
    const PleJob ple{.table = weights_.ple_table,
                     .tokens = skinny_.rows.tokens,
                     .norm = weights_.ple_norm,
                     .slices = widths_.L,
                     .P = widths_.P,
                     .projection_scale = 1.0f / root_d,
                     .table_scale = std::sqrt(static_cast<float>(widths_.P)),
                     .eps = model_->config().eps};
    combine_ple(ple, skinny_.ple_projection, rows, skinny_.ple, launch_config());
    mark(Step::kPleInput, widths_.L, rows, true);
  }
  if (cpu_layers_ != nullptr) {
    pass.buffer = 1;
    pass.pending.x = skinny_.x[1];
  }
  return pass;
}

void CudaExecutor::skinny_layer(uint32_t index, SkinnyPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  skinny_attention(index, pass);
  pass.pending.delta = skinny_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;
  skinny_feed_forward(index, pass);
  pass.pending.delta = skinny_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
  if (plan_.cluster_ple) return skinny_layer_end(index, pass);
  if (widths_.P > 0) {
    skinny_ple(index, pass);
    pass.pending.delta = skinny_.delta;
    pass.pending.delta_norm = weights.post_norm;
  }
  pass.pending.scale = weights.output_scale;
}

void CudaExecutor::skinny_attention(uint32_t index, SkinnyPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  SkinnyJob qkv;
  qkv.rows = pass.rows;
  qkv.parts = static_cast<uint32_t>(weights[GroupKind::kQkv].parts.size());
  const uint32_t total = weights[GroupKind::kQkv].rows();
  uint32_t offset = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) {
    qkv.part[p] = {weights[GroupKind::kQkv].parts[p], skinny_.qkv + offset, total};
    offset += weights[GroupKind::kQkv].parts[p].rows;
  }
  qkv.input = normalise(pass, weights.attn_norm, nullptr);
  multiply(qkv);
  mark(Step::kQkv, index, pass.rows, true);

  skinny_heads(index, pass);
  // Values are normalised before they are cached, so no result exceeds sqrt(hd): fp16 holds them as they are.
  multiply(to_stream(weights[GroupKind::kAttentionOutput], pass.rows, skinny_.attention, layer.H * layer.hd, nullptr));
  mark(Step::kAttentionOutput, index, pass.rows, true);
}

// From the projections to the results of attention.
void CudaExecutor::skinny_heads(uint32_t index, const SkinnyPass& pass) {
  const AttentionShape shape = shape_of(model_->config().layers[index]);
  const uint32_t splits = attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count);
  QkvPost post = qkv_post_job(index, skinny_.rows, true);
  // Where SMs have several blocks, these need all the shared memory there is.
  const bool one_per_sm = pass.rows * shape.Hkv * attention_head_groups(shape) * splits <= gpu_.sm_count;
  const LaunchConfig launch = one_per_sm ? decode_launch_config() : this->launch_config();
  if (plan_.step_heads && pass.single_rows) {
    attention_step(post, skinny_.qkv, pass.rows, skinny_.attention, splits, out_.attention_partial,
                   out_.attention_counters, launch);
  } else {
    post.q = skinny_.q;
    qkv_post(post, skinny_.qkv, pass.rows, decode_launch_config());
    mark(Step::kHeads, index, pass.rows, true);
    attention_decode(shape, skinny_.q, kv_of(index), skinny_.rows.positions, skinny_.rows.sequences, pass.rows,
                     skinny_.attention, splits, out_.attention_partial, out_.attention_counters, launch);
  }
  mark(Step::kAttention, index, pass.rows, true);
}

void CudaExecutor::skinny_feed_forward(uint32_t index, SkinnyPass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t leading = padded4(layer.F);
  SkinnyJob gate_up;
  gate_up.rows = pass.rows;
  gate_up.parts = 2;
  gate_up.input = normalise(pass, weights.ffn_norm, skinny_.act_largest);
  if (weights[GroupKind::kGateUp].parts[0].packing == weights[GroupKind::kGateUp].parts[1].packing) {
    gate_up.part[0] = {weights[GroupKind::kGateUp].parts[0], skinny_.act, leading};
    gate_up.part[1] = {weights[GroupKind::kGateUp].parts[1], skinny_.act, leading};
    gate_up.output = GemvOutput::kGeglu;
    gate_up.largest = skinny_.act_largest;
    multiply(gate_up);
  } else {
    gate_up.part[0] = {weights[GroupKind::kGateUp].parts[0], skinny_.gate_up, 2 * layer.F};
    gate_up.part[1] = {weights[GroupKind::kGateUp].parts[1], skinny_.gate_up + layer.F, 2 * layer.F};
    multiply(gate_up);
    skinny_geglu(skinny_.gate_up, pass.rows, layer.F, skinny_.act, leading, skinny_.act_largest,
                 decode_launch_config());
  }
  mark(Step::kGateUp, index, pass.rows, true);

  multiply(to_stream(weights[GroupKind::kDown], pass.rows, skinny_.act, leading, skinny_.act_largest));
  mark(Step::kDown, index, pass.rows, true);
}

void CudaExecutor::skinny_ple(uint32_t index, SkinnyPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t leading = padded4(widths_.P);
  SkinnyJob gate;
  gate.rows = pass.rows;
  gate.part[0] = {weights[GroupKind::kPleGate].parts.front(), skinny_.ple_gate, leading};
  gate.output = GemvOutput::kGeluTimes;
  gate.largest = skinny_.ple_largest;
  gate.factors = skinny_.ple + uint64_t{index} * widths_.P;
  gate.factors_leading = widths_.L * widths_.P;
  gate.input = normalise(pass, nullptr, skinny_.ple_largest);
  multiply(gate);
  mark(Step::kPleGate, index, pass.rows, true);
  multiply(to_stream(weights[GroupKind::kPleProject], pass.rows, skinny_.ple_gate, leading, skinny_.ple_largest));
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
void CudaExecutor::skinny_layer_end(uint32_t index, SkinnyPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  PleStep<float> job{.residual = pass.pending,
                     .gate = weights[GroupKind::kPleGate].parts.front(),
                     .proj = weights[GroupKind::kPleProject].parts.front(),
                     .factors = skinny_.ple + uint64_t{index} * widths_.P,
                     .factors_leading = widths_.L * widths_.P,
                     .post_norm = weights.post_norm,
                     .bound = norm_bounds_[index]};
  pass.buffer ^= 1;
  job.residual.x_out = skinny_.x[pass.buffer];
  job.residual.scale = weights.output_scale;
  job.residual.next_norm = norm_after(index);
  SkinnyRows out = skinny_.in;
  out.tiles = skinny_tiles(pass.rows);
  ple_step(job, pass.rows, out, decode_launch_config());
  mark(Step::kPleProject, index, pass.rows, true);
  pass.pending = {.x = skinny_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  pass.normalised = true;
}

}  // namespace carat::cuda
