// Decode: up to eight rows, one matrix-vector launch per group of matrices. A whole step is captured as one graph per
// bucket of rows; positions, tokens and the number of candidates are read from device memory, so a replay needs nothing
// but one small copy.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/feed_forward.h"
#include "exec/cuda/kernels/norm.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

bool has_floats(const MatrixGroup& group) {
  return std::any_of(group.parts.begin(), group.parts.end(),
                     [](const PackedView& part) { return is_float_packing(part.packing); });
}

bool job_has_floats(const MatvecJob& job) {
  for (uint32_t p = 0; p < job.parts; ++p) {
    if (is_float_packing(job.part[p].weights.packing)) return true;
  }
  return false;
}

// The job of rows [first, first + count) of a job that is too wide for one launch.
MatvecJob rows_of(MatvecJob job, uint32_t first, uint32_t count) {
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
  return job;
}

}  // namespace

void CudaExecutor::multiply(const MatvecJob& job) {
  const uint32_t most = matvec_max_rows(job.part[0].weights.cols, job_has_floats(job), gpu_.shared_memory);
  for (uint32_t first = 0; first < job.rows; first += most) {
    matvec(rows_of(job, first, std::min(most, job.rows - first)), gpu_.sm_count, how());
  }
}

// Gives the job the residual stream as input: everything pending is absorbed, then the norm `next_norm` applied.
void CudaExecutor::apply(NarrowPass& pass, const float* next_norm, MatvecJob& job) {
  ResidualNorm residual = pass.pending;
  residual.next_norm = next_norm;
  const bool changes = residual.delta != nullptr;
  if (changes) {
    pass.buffer ^= 1;
    residual.x_out = narrow_.x[pass.buffer];
    pass.pending = {.x = narrow_.x[pass.buffer], .eps = model_->config().eps, .d = widths_.d};
  }
  job.input = MatvecInput::kQuantised;
  job.quantised = narrow_.in;
  if (!job_has_floats(job)) job.quantised.values = nullptr;
  quantise_residual_norm(residual, pass.rows, job.quantised, how());
  mark(Step::kNorm, 0, pass);
}

void CudaExecutor::quantise_input(MatvecJob& job, const float* floats, uint32_t cols) {
  // For one or two rows each block rounding the input itself is cheaper than a kernel of its own.
  if (job.rows <= 2) {
    job.input = MatvecInput::kFloats;
    job.floats = floats;
    return;
  }
  job.input = MatvecInput::kQuantised;
  job.quantised = narrow_.in;
  if (!job_has_floats(job)) job.quantised.values = nullptr;
  quantise_floats(floats, job.rows, cols, cols, job.quantised, how());
}

void CudaExecutor::fill_control(std::span<const exec::Row> rows, uint32_t bucket) {
  fill_rows(*control_.as<DecodeControl>(), rows, bucket);
}

void CudaExecutor::run_narrow(std::span<const exec::Row> rows) {
  const auto count = static_cast<uint32_t>(rows.size());
  const auto wanting =
      static_cast<uint32_t>(std::count_if(rows.begin(), rows.end(), [](const exec::Row& r) { return r.wants_logits; }));
  const uint32_t bucket = std::bit_ceil(count);
  fill_control(rows, bucket);
  output_count_ = wanting;
  if (wanting == count) {
    run_step(graphs_[bucket], [&] { decode_step(bucket); });
    selected_k_ = wanted_k_;
    return;
  }
  NarrowPass pass = enter_narrow(bucket);
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) {
    check_cancelled();
    narrow_layer(i, pass, true);
  }
  if (wanting == 0) return;
  // The rows that want logits, in order, to the front of the hidden states.
  ResidualNorm last = pass.pending;
  last.x_out = narrow_.x[pass.buffer ^ 1];
  quantise_residual_norm(last, bucket, narrow_.in, how());
  uint32_t output = 0;
  for (uint32_t r = 0; r < count; ++r) {
    if (!rows[r].wants_logits) continue;
    check(cudaMemcpyAsync(out_.hidden + uint64_t{output} * widths_.d, last.x_out + uint64_t{r} * widths_.d,
                          widths_.d * sizeof(float), cudaMemcpyDeviceToDevice, stream_.get()),
          "collecting outputs");
    ++output;
  }
  head_from_hidden();
}

// Everything of one token but the results' way back: runs eagerly or under capture.
void CudaExecutor::decode_step(uint32_t rows) {
  if (rows == 1 && plan_.use_token && profiler_ == nullptr) return token_step();
  NarrowPass pass = enter_narrow(rows);
  for (uint32_t i = layers_on_cpu(); i < widths_.L; ++i) narrow_layer(i, pass, true);
  narrow_head(pass);
  select_best(out_.logits, rows, widths_.V, &narrow_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, how());
  mark(Step::kSelect, 0, pass);
}

// Brings a pass of the rows in the control block to the first layer on the GPU.
CudaExecutor::NarrowPass CudaExecutor::enter_narrow(uint32_t rows) {
  check(cudaMemcpyAsync(narrow_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice, stream_.get()),
        "uploading rows");
  if (cpu_layers_ == nullptr) return begin_narrow(rows);
  // Beside the embeddings, which the per-layer inputs are still made from, and before the first kernel.
  check(cudaMemcpyAsync(narrow_.x[1], entering_.data(), uint64_t{rows} * widths_.d * sizeof(float),
                        cudaMemcpyHostToDevice, stream_.get()),
        "uploading what the layers on the CPU handed over");
  NarrowPass pass = begin_narrow(rows);
  pass.buffer = 1;
  pass.pending.x = narrow_.x[1];
  return pass;
}

CudaExecutor::NarrowPass CudaExecutor::begin_narrow(uint32_t rows) {
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  mark(Step::kUpload, 0, rows, true);
  // The first kernel after a copy must not start early: its predecessor is no kernel.
  gather_rows(weights_.token_embd, narrow_.rows.tokens, rows, root_d, narrow_.x[0], widths_.d, stream_.get(), false);
  make_rope_tables(narrow_.rows, rows);
  NarrowPass pass;
  pass.rows = rows;
  pass.pending = {.x = narrow_.x[0], .eps = model_->config().eps, .d = widths_.d};
  mark(Step::kEmbed, 0, pass);
  if (widths_.P > 0) {
    MatvecJob job;
    job.rows = rows;
    job.part[0] = {weights_.ple_projection.parts.front(), narrow_.ple_projection, widths_.L * widths_.P};
    quantise_input(job, narrow_.x[0], widths_.d);
    multiply(job);
    narrow_ple(rows);
    mark(Step::kPleInput, widths_.L, pass);
  }
  return pass;
}

void CudaExecutor::narrow_ple(uint32_t rows) {
  const PleJob ple{.table = weights_.ple_table,
                   .tokens = narrow_.rows.tokens,
                   .norm = weights_.ple_norm,
                   .slices = widths_.L,
                   .P = widths_.P,
                   .projection_scale = 1.0f / std::sqrt(static_cast<float>(widths_.d)),
                   .table_scale = std::sqrt(static_cast<float>(widths_.P)),
                   .eps = model_->config().eps};
  combine_ple(ple, narrow_.ple_projection, rows, narrow_.ple, how());
}

void CudaExecutor::narrow_layer(uint32_t index, NarrowPass& pass, bool write_kv) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  const uint32_t d = widths_.d;

  MatvecJob qkv;
  qkv.rows = pass.rows;
  qkv.parts = write_kv ? static_cast<uint32_t>(weights.qkv.parts.size()) : 1;
  uint32_t total = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) total += weights.qkv.parts[p].rows;
  uint32_t offset = 0;
  for (uint32_t p = 0; p < qkv.parts; ++p) {
    qkv.part[p] = {weights.qkv.parts[p], narrow_.qkv + offset, total};
    offset += weights.qkv.parts[p].rows;
  }
  apply(pass, weights.attn_norm, qkv);
  multiply(qkv);
  mark(write_kv ? Step::kQkv : Step::kQueries, index, pass);

  QkvPost post = qkv_post_job(index, narrow_.rows, write_kv);
  post.q = narrow_.q;
  qkv_post(post, narrow_.qkv, pass.rows, how());
  mark(Step::kHeads, index, pass);
  const AttentionShape shape = shape_of(layer);
  attention_decode(shape, narrow_.q, kv_of(index), narrow_.rows.positions, narrow_.rows.sequences, pass.rows,
                   narrow_.attention, attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count),
                   out_.attention_partial, out_.attention_counters, how());
  mark(Step::kAttention, index, pass);

  MatvecJob output;
  output.rows = pass.rows;
  output.part[0] = {weights.output.parts.front(), narrow_.delta, d};
  quantise_input(output, narrow_.attention, layer.H * layer.hd);
  multiply(output);
  mark(Step::kAttentionOutput, index, pass);
  pass.pending.delta = narrow_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;

  if (layer.moe) narrow_experts(index, pass);
  QuantisedRows act = narrow_.act;
  if (!has_floats(weights.down)) act.values = nullptr;
  MatvecJob gate_up;
  gate_up.rows = pass.rows;
  gate_up.parts = 2;
  gate_up.part[0] = {weights.gate_up.parts[0], narrow_.gate_up, 2 * layer.F};
  gate_up.part[1] = {weights.gate_up.parts[1], narrow_.gate_up + layer.F, 2 * layer.F};
  const bool same_packing = weights.gate_up.parts[0].packing == weights.gate_up.parts[1].packing;
  if (same_packing) {
    gate_up.output = MatvecOutput::kGeglu;
    gate_up.geglu = act;
    gate_up.geglu_steps = steps_of(layer.F);
  }
  apply(pass, weights.ffn_norm, gate_up);
  multiply(gate_up);
  if (!same_packing) quantise_geglu(narrow_.gate_up, pass.rows, layer.F, act, how());
  mark(Step::kGateUp, index, pass);

  MatvecJob down;
  down.rows = pass.rows;
  down.part[0] = {weights.down.parts.front(), narrow_.delta, d};
  down.quantised = narrow_.act;
  multiply(down);
  mark(Step::kDown, index, pass);
  pass.pending.delta = narrow_.delta;
  pass.pending.delta_norm = weights.post_ffw_norm;
  if (layer.moe) {
    pass.pending.dense_norm = weights.post_ffw_norm_1;
    pass.pending.experts = narrow_.experts;
    pass.pending.experts_norm = weights.post_ffw_norm_2;
  }

  if (widths_.P > 0) {
    MatvecJob gate;
    gate.rows = pass.rows;
    gate.part[0] = {weights.inp_gate.parts.front(), narrow_.ple_gate, widths_.P};
    gate.output = MatvecOutput::kGeluTimes;
    gate.factors = narrow_.ple + uint64_t{index} * widths_.P;
    gate.factors_leading = widths_.L * widths_.P;
    apply(pass, nullptr, gate);
    multiply(gate);
    mark(Step::kPleGate, index, pass);
    MatvecJob proj;
    proj.rows = pass.rows;
    proj.part[0] = {weights.proj.parts.front(), narrow_.delta, d};
    quantise_input(proj, narrow_.ple_gate, widths_.P);
    multiply(proj);
    mark(Step::kPleProject, index, pass);
    pass.pending.delta = narrow_.delta;
    pass.pending.delta_norm = weights.post_norm;
  }
  pass.pending.scale = weights.output_scale;
}

// The expert branch of a mixture-of-experts layer, from the state after attention; the dense branch follows in the
// layer.
void CudaExecutor::narrow_experts(uint32_t index, NarrowPass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  const model::Config& config = model_->config();
  // Absorbs the attention output first, so that all three consumers read the same stream.
  ResidualNorm residual = pass.pending;
  residual.next_norm = weights.pre_ffw_norm_2;
  pass.buffer ^= 1;
  residual.x_out = narrow_.x[pass.buffer];
  quantise_residual_norm(residual, pass.rows, narrow_.expert_in, how());
  pass.pending = {.x = narrow_.x[pass.buffer], .eps = config.eps, .d = widths_.d};

  MatvecJob router;
  router.rows = pass.rows;
  router.part[0] = {weights.router_packed, narrow_.router_logits, config.experts};
  apply(pass, weights.router_scale, router);
  multiply(router);
  moe_route(narrow_.router_logits, weights.expert_scale, pass.rows, config.experts, config.experts_used,
            narrow_.expert_ids, narrow_.expert_weights, how());
  mark(Step::kRouter, index, pass);
  moe_gate_up(weights.expert_gate, weights.expert_up, config.F_expert, narrow_.expert_in, narrow_.expert_ids, pass.rows,
              config.experts_used, narrow_.expert_act, how());
  mark(Step::kExpertsUp, index, pass);
  moe_down(weights.expert_down, widths_.d, narrow_.expert_act, narrow_.expert_ids, narrow_.expert_weights, pass.rows,
           config.experts_used, narrow_.experts, how());
  mark(Step::kExpertsDown, index, pass);
}

void CudaExecutor::narrow_head(NarrowPass& pass) {
  MatvecJob head;
  head.rows = pass.rows;
  head.part[0] = {weights_.head.parts.front(), out_.logits, widths_.V};
  head.output = MatvecOutput::kSoftcap;
  head.cap = model_->config().softcap;
  head.non_finite = results_.non_finite;
  apply(pass, weights_.output_norm, head);
  multiply(head);
  mark(Step::kHead, 0, pass);
}

}  // namespace carat::cuda
