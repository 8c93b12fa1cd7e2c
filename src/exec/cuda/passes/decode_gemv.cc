// Decode: up to eight rows, one matrix-vector launch per group of matrices. A whole step is captured as one graph per
// bucket of rows; positions, tokens and the number of candidates are read from device memory, so a replay needs nothing
// but one small copy.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/elementwise/norm.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

bool has_floats(const MatrixGroup& group) {
  return std::any_of(group.parts.begin(), group.parts.end(),
                     [](const PackedView& part) { return is_float_packing(part.packing); });
}

bool job_has_floats(const GemvJob& job) {
  for (uint32_t p = 0; p < job.parts; ++p) {
    if (is_float_packing(job.part[p].weights.packing)) return true;
  }
  return false;
}

// The job of rows [first, first + count) of a job that is too wide for one launch.
GemvJob rows_of(GemvJob job, uint32_t first, uint32_t count) {
  const uint64_t cols = job.part[0].weights.cols, steps = job.part[0].weights.steps;
  job.rows = count;
  for (uint32_t p = 0; p < job.parts; ++p) {
    if (job.part[p].out != nullptr) job.part[p].out += uint64_t{first} * job.part[p].leading;
  }
  const auto advance = [first](QuantisedRows& rows, uint64_t row_steps) {
    if (rows.words != nullptr) rows.words += first * row_steps * kStepWords;
    if (rows.meta != nullptr) rows.meta += first * row_steps * kStepBlocks;
    if (rows.values != nullptr) rows.values += first * row_steps * kStep;
  };
  advance(job.quantised, steps);
  advance(job.geglu, job.geglu_steps);
  if (job.floats != nullptr) job.floats += first * cols;
  if (job.factors != nullptr) job.factors += uint64_t{first} * job.factors_leading;
  if (job.non_finite != nullptr) job.non_finite += first;
  return job;
}

}  // namespace

void CudaExecutor::multiply(const GemvJob& job) {
  const uint32_t most = gemv_max_rows(job.part[0].weights.cols, job_has_floats(job), gpu_.shared_memory);
  for (uint32_t first = 0; first < job.rows; first += most) {
    gemv(rows_of(job, first, std::min(most, job.rows - first)), gpu_.sm_count, launch_config());
  }
}

// Gives the job the residual stream as input: everything pending is absorbed, then the norm `next_norm` applied.
void CudaExecutor::apply(GemvPass& pass, const float* next_norm, GemvJob& job) {
  ResidualNorm residual = pass.pending;
  residual.next_norm = next_norm;
  const bool changes = residual.delta != nullptr;
  if (changes) {
    pass.buffer ^= 1;
    residual.x_out = gemv_buffers_.x[pass.buffer];
    pass.pending = {.x = gemv_buffers_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  }
  job.input = GemvInput::kQuantised;
  job.quantised = gemv_buffers_.in;
  if (!job_has_floats(job)) job.quantised.values = nullptr;
  quantise_residual_norm(residual, pass.rows, job.quantised, launch_config());
  mark(Step::kNorm, 0, pass);
}

void CudaExecutor::quantise_input(GemvJob& job, const float* floats, uint32_t cols) {
  // For one or two rows each block rounding the input itself is cheaper than a kernel of its own.
  if (job.rows <= 2) {
    job.input = GemvInput::kFloats;
    job.floats = floats;
    return;
  }
  job.input = GemvInput::kQuantised;
  job.quantised = gemv_buffers_.in;
  if (!job_has_floats(job)) job.quantised.values = nullptr;
  quantise_floats(floats, job.rows, cols, cols, job.quantised, launch_config());
}

void CudaExecutor::fill_control(std::span<const exec::Row> rows, uint32_t bucket) {
  fill_rows(*control_.as<DecodeControl>(), rows, bucket);
}

void CudaExecutor::run_decode_gemv(std::span<const exec::Row> rows, const PassClass& shape) {
  fill_control(rows, shape.rows);
  output_count_ = shape.outputs;
  run_step(graphs_[shape.rows], [&] { gemv_step(shape.rows); });
  selected_k_ = wanted_k_;
}

// Kernel by kernel: which rows want logits differs from pass to pass.
void CudaExecutor::run_prompt_gemv(std::span<const exec::Row> rows, const PassClass& shape) {
  fill_control(rows, shape.rows);
  output_count_ = shape.outputs;
  GemvPass pass = enter_gemv_pass(shape.rows);
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) {
    check_cancelled();
    gemv_layer(i, pass, true);
  }
  if (output_count_ == 0) return;
  // The rows that want logits, in order, to the front of the hidden states.
  ResidualNorm last = pass.pending;
  last.x_out = gemv_buffers_.x[pass.buffer ^ 1];
  quantise_residual_norm(last, shape.rows, gemv_buffers_.in, launch_config());
  uint32_t output = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].wants_logits) continue;
    check(cudaMemcpyAsync(out_.hidden + uint64_t{output} * widths_.d, last.x_out + uint64_t{r} * widths_.d,
                          widths_.d * sizeof(float), cudaMemcpyDeviceToDevice, stream_.get()),
          "collecting outputs");
    ++output;
  }
  head_from_hidden();
}

// Everything of one step but the results' way back: runs eagerly or under capture.
void CudaExecutor::gemv_step(uint32_t rows) {
  GemvPass pass = enter_gemv_pass(rows);
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) gemv_layer(i, pass, true);
  gemv_head(pass);
  select_best(out_.logits, rows, widths_.V, &gemv_buffers_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, launch_config());
  mark(Step::kSelect, 0, pass);
}

// Brings a pass of the rows in the control block to the first layer on the GPU.
CudaExecutor::GemvPass CudaExecutor::enter_gemv_pass(uint32_t rows) {
  check(cudaMemcpyAsync(gemv_buffers_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading rows");
  if (cpu_layers_ == nullptr) return begin_gemv_pass(rows);
  // Beside the embeddings, which the per-layer inputs are still made from, and before the first kernel.
  check(cudaMemcpyAsync(gemv_buffers_.x[1], entering_.data(), uint64_t{rows} * widths_.d * sizeof(float),
                        cudaMemcpyHostToDevice, stream_.get()),
        "uploading what the layers on the CPU handed over");
  GemvPass pass = begin_gemv_pass(rows);
  pass.buffer = 1;
  pass.pending.x = gemv_buffers_.x[1];
  return pass;
}

CudaExecutor::GemvPass CudaExecutor::begin_gemv_pass(uint32_t rows) {
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  mark(Step::kUpload, 0, rows, true);
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, gemv_buffers_.rows.tokens, rows, root_d, gemv_buffers_.x[0], widths_.d,
              stream_.get(), false);
  make_rope_tables(gemv_buffers_.rows, rows);
  GemvPass pass;
  pass.rows = rows;
  pass.pending = {.x = gemv_buffers_.x[0], .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, pass);
  if (widths_.P > 0) {
    GemvJob job;
    job.rows = rows;
    job.part[0] = {weights_.ple_projection.parts.front(), gemv_buffers_.ple_projection, widths_.L * widths_.P};
    quantise_input(job, gemv_buffers_.x[0], widths_.d);
    multiply(job);
    gemv_ple(rows);
    mark(Step::kPleInput, widths_.L, pass);
  }
  return pass;
}

void CudaExecutor::gemv_ple(uint32_t rows) {
  const PleJob ple{.table = weights_.ple_table,
                   .tokens = gemv_buffers_.rows.tokens,
                   .norm = weights_.ple_norm,
                   .slices = widths_.L,
                   .P = widths_.P,
                   .projection_scale = 1.0f / std::sqrt(static_cast<float>(widths_.d)),
                   .table_scale = std::sqrt(static_cast<float>(widths_.P)),
                   .eps = model_->config().eps};
  combine_ple(ple, gemv_buffers_.ple_projection, rows, gemv_buffers_.ple, launch_config());
}

void CudaExecutor::gemv_layer(uint32_t index, GemvPass& pass, bool write_kv) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t d = widths_.d;

  GemvJob qkv;
  qkv.rows = pass.rows;
  qkv.parts = write_kv ? static_cast<uint32_t>(weights[GroupKind::kQkv].parts.size()) : 1;
  uint32_t total = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) total += weights[GroupKind::kQkv].parts[p].rows;
  uint32_t offset = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) {
    qkv.part[p] = {weights[GroupKind::kQkv].parts[p], gemv_buffers_.qkv + offset, total};
    offset += weights[GroupKind::kQkv].parts[p].rows;
  }
  apply(pass, weights.attn_norm, qkv);
  multiply(qkv);
  mark(write_kv ? Step::kQkv : Step::kQueries, index, pass);

  QkvPost post = qkv_post_job(index, gemv_buffers_.rows, write_kv);
  post.q = gemv_buffers_.q;
  qkv_post(post, gemv_buffers_.qkv, pass.rows, launch_config());
  mark(Step::kHeads, index, pass);
  const AttentionShape shape = shape_of(layer);
  attention_decode(shape, gemv_buffers_.q, kv_of(index), gemv_buffers_.rows.positions, gemv_buffers_.rows.sequences,
                   pass.rows, gemv_buffers_.attention,
                   attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count), out_.attention_partial,
                   out_.attention_counters, launch_config());
  mark(Step::kAttention, index, pass);

  GemvJob output;
  output.rows = pass.rows;
  output.part[0] = {weights[GroupKind::kAttentionOutput].parts.front(), gemv_buffers_.delta, d};
  quantise_input(output, gemv_buffers_.attention, layer.H * layer.hd);
  multiply(output);
  mark(Step::kAttentionOutput, index, pass);
  pass.pending.delta = gemv_buffers_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;

  if (layer.moe) gemv_experts(index, pass);
  QuantisedRows act = gemv_buffers_.act;
  if (!has_floats(weights[GroupKind::kDown])) act.values = nullptr;
  GemvJob gate_up;
  gate_up.rows = pass.rows;
  gate_up.parts = 2;
  gate_up.part[0] = {weights[GroupKind::kGateUp].parts[0], gemv_buffers_.gate_up, 2 * layer.F};
  gate_up.part[1] = {weights[GroupKind::kGateUp].parts[1], gemv_buffers_.gate_up + layer.F, 2 * layer.F};
  const bool same_packing =
      weights[GroupKind::kGateUp].parts[0].packing == weights[GroupKind::kGateUp].parts[1].packing;
  if (same_packing) {
    gate_up.output = GemvOutput::kGeglu;
    gate_up.geglu = act;
    gate_up.geglu_steps = steps_of(layer.F);
  }
  apply(pass, weights.ffn_norm, gate_up);
  multiply(gate_up);
  if (!same_packing) quantise_geglu(gemv_buffers_.gate_up, pass.rows, layer.F, act, launch_config());
  mark(Step::kGateUp, index, pass);

  GemvJob down;
  down.rows = pass.rows;
  down.part[0] = {weights[GroupKind::kDown].parts.front(), gemv_buffers_.delta, d};
  down.quantised = gemv_buffers_.act;
  multiply(down);
  mark(Step::kDown, index, pass);
  pass.pending.delta = gemv_buffers_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
  if (layer.moe) {
    pass.pending.dense_norm = weights.post_ffw_norm_1;
    pass.pending.experts = gemv_buffers_.experts;
    pass.pending.experts_norm = weights.post_ffw_norm_2;
  }

  if (widths_.P > 0) {
    GemvJob gate;
    gate.rows = pass.rows;
    gate.part[0] = {weights[GroupKind::kPleGate].parts.front(), gemv_buffers_.ple_gate, widths_.P};
    gate.output = GemvOutput::kGeluTimes;
    gate.factors = gemv_buffers_.ple + uint64_t{index} * widths_.P;
    gate.factors_leading = widths_.L * widths_.P;
    apply(pass, nullptr, gate);
    multiply(gate);
    mark(Step::kPleGate, index, pass);
    GemvJob proj;
    proj.rows = pass.rows;
    proj.part[0] = {weights[GroupKind::kPleProject].parts.front(), gemv_buffers_.delta, d};
    quantise_input(proj, gemv_buffers_.ple_gate, widths_.P);
    multiply(proj);
    mark(Step::kPleProject, index, pass);
    pass.pending.delta = gemv_buffers_.delta;
    pass.pending.delta_norm = weights.post_norm;
  }
  pass.pending.scale = weights.output_scale;
}

// The expert branch of a mixture-of-experts layer, from the state after attention; the dense branch follows in the
// layer.
void CudaExecutor::gemv_experts(uint32_t index, GemvPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  const model::Config& config = model_->config();
  // Absorbs the attention output first, so that all three consumers read the same stream.
  ResidualNorm residual = pass.pending;
  residual.next_norm = weights.pre_ffw_norm_2;
  pass.buffer ^= 1;
  residual.x_out = gemv_buffers_.x[pass.buffer];
  quantise_residual_norm(residual, pass.rows, gemv_buffers_.expert_in, launch_config());
  pass.pending = {.x = gemv_buffers_.x[pass.buffer], .eps = config.eps, .d = widths_.d};

  GemvJob router;
  router.rows = pass.rows;
  router.part[0] = {weights[GroupKind::kRouter].parts.front(), gemv_buffers_.router_logits, config.experts};
  apply(pass, weights.router_scale, router);
  multiply(router);
  moe_route(gemv_buffers_.router_logits, weights.expert_scale, pass.rows, config.experts, config.experts_used,
            gemv_buffers_.expert_ids, gemv_buffers_.expert_weights, launch_config());
  mark(Step::kRouter, index, pass);
  moe_gate_up(weights.expert_gate, weights.expert_up, config.F_expert, gemv_buffers_.expert_in,
              gemv_buffers_.expert_ids, pass.rows, config.experts_used, gemv_buffers_.expert_act, launch_config());
  mark(Step::kExpertsUp, index, pass);
  moe_down(weights[GroupKind::kExpertDown].parts.front(), widths_.d, gemv_buffers_.expert_act, gemv_buffers_.expert_ids,
           gemv_buffers_.expert_weights, pass.rows, config.experts_used, gemv_buffers_.experts, launch_config());
  mark(Step::kExpertsDown, index, pass);
}

void CudaExecutor::gemv_head(GemvPass& pass) {
  GemvJob head;
  head.rows = pass.rows;
  head.part[0] = {weights_.head.parts.front(), out_.logits, widths_.V};
  head.output = GemvOutput::kSoftcap;
  head.cap = model_->config().softcap;
  head.non_finite = results_.non_finite;
  apply(pass, weights_.output_norm, head);
  multiply(head);
  mark(Step::kHead, 0, pass);
}

}  // namespace carat::cuda
