// Prompt chunks: many rows at once, weights as bf16 operands of matrix products, activations in bf16 between kernels
// and the residual stream in fp32.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/kernels/attention_sparse.h"
#include "exec/cuda/kernels/feed_forward.h"
#include "exec/cuda/kernels/mmq.h"
#include "exec/cuda/kernels/norm.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

// Consecutive rows of one sequence, cut into tiles of at most `most` rows.
std::vector<Segment> tiles_of(std::span<const exec::Row> rows, uint32_t most) {
  std::vector<Segment> tiles;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const bool continues =
        r > 0 && rows[r].sequence == rows[r - 1].sequence && rows[r].position == rows[r - 1].position + 1;
    if (continues && tiles.back().count < most) {
      ++tiles.back().count;
    } else {
      tiles.push_back({r, 1, rows[r].position, rows[r].sequence});
    }
  }
  return tiles;
}

const model::Layer* first_layer(const model::Config& config, bool sliding) {
  for (const model::Layer& layer : config.layers) {
    if (layer.sliding == sliding) return &layer;
  }
  return nullptr;
}

}  // namespace

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

// Parts [first, last) of a group: the others' results are not wanted. `a` is not read where mmq does it; whatever made
// the input has rounded it for that.
void CudaExecutor::product(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                           __nv_bfloat16* out, uint32_t rows) {
  uint32_t before = 0, columns = 0;
  for (size_t p = 0; p < first; ++p) before += group.parts[p].rows;
  for (size_t p = first; p < last; ++p) columns += group.parts[p].rows;
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

void CudaExecutor::upload_rows(std::span<const exec::Row> rows) {
  const auto n = static_cast<uint32_t>(rows.size());
  auto* host = staging_.as<uint32_t>();
  for (uint32_t r = 0; r < n; ++r) {
    host[r] = static_cast<uint32_t>(rows[r].token);
    host[plan_.chunk + r] = rows[r].position;
    host[2 * plan_.chunk + r] = rows[r].sequence;
  }
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "uploading rows");
  };
  copy(wide_.rows.tokens, host, n * 4);
  copy(wide_.rows.positions, host + plan_.chunk, n * 4);
  copy(wide_.rows.sequences, host + 2 * plan_.chunk, n * 4);
}

CudaExecutor::WidePass CudaExecutor::begin_wide(std::span<const exec::Row> rows, uint32_t slices) {
  const model::Config& config = model_->config();
  WidePass pass;
  pass.rows = static_cast<uint32_t>(rows.size());
  pass.slices = slices;
  upload_rows(rows);
  const bool singles = tiles_of(rows, UINT32_MAX).size() == rows.size() && rows.size() <= plan_.outputs;
  if (!singles) {
    auto* host = reinterpret_cast<Segment*>(staging_.as<char>() + uint64_t{plan_.chunk} * 12 / 16 * 16 + 256);
    for (const bool sliding : {true, false}) {
      const model::Layer* layer = first_layer(config, sliding);
      if (layer == nullptr) continue;
      const auto tiles = tiles_of(rows, attention_tile_rows(shape_of(*layer), plan_.attention_shared_memory));
      std::memcpy(host, tiles.data(), tiles.size() * sizeof(Segment));
      check(cudaMemcpyAsync(sliding ? wide_.tiles_sliding : wide_.tiles_global, host, tiles.size() * sizeof(Segment),
                            cudaMemcpyHostToDevice, stream_.get()),
            "uploading tiles");
      (sliding ? pass.tiles_sliding : pass.tiles_global) = static_cast<uint32_t>(tiles.size());
      if (!sliding) pass.global_runs = runs_of(tiles);
      host += plan_.chunk;
    }
  }
  mark(Step::kUpload, 0, pass);
  const float root_d = std::sqrt(static_cast<float>(widths_.d));
  gather_rows(weights_.token_embd, wide_.rows.tokens, pass.rows, root_d, wide_.x, widths_.d, stream_.get(), false);
  make_rope_tables(wide_.rows, pass.rows);
  pass.pending = {.x = wide_.x, .eps = config.eps, .d = widths_.d};
  mark(Step::kEmbed, 0, pass);
  if (widths_.P > 0) {
    to_bf16(wide_.x, uint64_t{pass.rows} * widths_.d, wide_.normed, how());
    const uint32_t columns = slices * widths_.P;
    gemm_.run(wide_.normed, weights_bf16(weights_.ple_projection.parts, weights_.ple_projection.bf16),
              wide_.ple_projection, pass.rows, columns, widths_.d, stream_.get());
    const PleJob ple{.table = weights_.ple_table,
                     .tokens = wide_.rows.tokens,
                     .norm = weights_.ple_norm,
                     .slices = slices,
                     .P = widths_.P,
                     .projection_scale = 1.0f / root_d,
                     .table_scale = std::sqrt(static_cast<float>(widths_.P)),
                     .eps = config.eps};
    combine_ple(ple, wide_.ple_projection, pass.rows, wide_.ple, how());
    mark(Step::kPleInput, slices, pass);
  }
  return pass;
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
  absorb(pass, next_norm, [&](const WideResidual& residual) { residual_norm_bf16(residual, pass.rows, out, how()); });
}

// The same for the products of a group: rounded as they read it.
void CudaExecutor::normalise(WidePass& pass, const float* next_norm, const MatrixGroup& readers) {
  if (!by_mmq(readers)) return normalise(pass, next_norm, wide_.normed);
  absorb(pass, next_norm,
         [&](const WideResidual& residual) { residual_norm_mmq(residual, pass.rows, mmq_rows(), how()); });
}

void CudaExecutor::wide_keys_values(uint32_t index, WidePass& pass) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights.qkv);
  product(weights.qkv, 1, weights.qkv.parts.size(), wide_.normed, wide_.qkv, pass.rows);
  mark(Step::kKeysValues, index, pass);
  QkvPost post = qkv_post_job(index, wide_.rows, true);
  post.only_kv = true;
  qkv_post(post, wide_.qkv, pass.rows, how());
  mark(Step::kHeads, index, pass);
}

std::vector<CudaExecutor::TileRun> CudaExecutor::runs_of(std::span<const Segment> tiles) {
  std::vector<TileRun> runs;
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    const uint32_t end = tiles[i].position + tiles[i].count;
    if (runs.empty() || runs.back().sequence != tiles[i].sequence) runs.push_back({i, 0, tiles[i].sequence, 0});
    ++runs.back().count;
    runs.back().end = std::max(runs.back().end, end);
  }
  return runs;
}

// Sequence by sequence: the mean keys of one at a time are kept.
void CudaExecutor::sparse_attention(const AttentionShape& shape, const KvView& kv, const WidePass& pass) {
  const SparseScratch scratch{sparse_.pooled, sparse_.blocks, sparse_.counts, sparse_.pooled_blocks,
                              sparse_.list_length};
  for (const TileRun& run : pass.global_runs) {
    const Segment* tiles = wide_.tiles_global + run.first;
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
  if (tiles > 0) {
    attention_prefill(shape, wide_.q, kv_of(index), layer.sliding ? wide_.tiles_sliding : wide_.tiles_global, tiles,
                      wide_.attention, plan_.attention_shared_memory, how());
    return;
  }
  attention_decode(shape, wide_.q, kv_of(index), wide_.rows.positions, wide_.rows.sequences, pass.rows,
                   wide_.attention_float, attention_decode_splits(shape, pass.rows, plan_.context, gpu_.sm_count),
                   out_.attention_partial, out_.attention_counters, how());
  to_bf16(wide_.attention_float, uint64_t{pass.rows} * layer.H * layer.hd, wide_.attention, how());
}

void CudaExecutor::wide_layer(uint32_t index, WidePass& pass, bool write_kv) {
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.attn_norm, weights.qkv);
  product(weights.qkv, 0, write_kv ? weights.qkv.parts.size() : 1, wide_.normed, wide_.qkv, pass.rows);
  mark(write_kv ? Step::kQkv : Step::kQueries, index, pass);
  QkvPost post = qkv_post_job(index, wide_.rows, write_kv);
  post.q = wide_.q;
  qkv_post(post, wide_.qkv, pass.rows, how());
  mark(Step::kHeads, index, pass);
  wide_attention(index, pass);
  mark(Step::kAttention, index, pass);
  if (by_mmq(weights.output)) quantise_mmq(wide_.attention, pass.rows, weights.output.cols(), mmq_rows(), how());
  product(weights.output, wide_.attention, wide_.delta, pass.rows);
  mark(Step::kAttentionOutput, index, pass);
  pass.pending.delta = wide_.delta;
  pass.pending.delta_norm = weights.post_attention_norm;
  wide_feed_forward(index, pass);
  if (widths_.P > 0) wide_ple(index, pass);
  pass.pending.scale = weights.output_scale;
}

void CudaExecutor::wide_feed_forward(uint32_t index, WidePass& pass) {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  normalise(pass, weights.ffn_norm, weights.gate_up);
  if (dequantises(weights.gate_up) && weights.gate_up.parts[0].packing == weights.gate_up.parts[1].packing) {
    gate_up_by_warpgroups(weights.gate_up, wide_.normed, wide_.act, pass.rows);
  } else {
    product(weights.gate_up, wide_.normed, wide_.gate_up, pass.rows);
    if (by_mmq(weights.down)) {
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
  const auto wanting =
      static_cast<uint32_t>(std::count_if(rows.begin(), rows.end(), [](const exec::Row& r) { return r.wants_logits; }));
  // Rows that want no logits are done once the last layer that owns keys and values has theirs.
  const bool stops = options_.kv_share_shortcut && wanting < rows.size();
  const uint32_t stop = stops ? config.n_kv - 1 : config.L;
  output_count_ = wanting;
  WidePass pass = begin_wide(rows, stops ? config.n_kv : config.L);
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
  if (stops) wide_keys_values(stop, pass);
  if (wanting > 0) finish_wide(rows, pass, stop);
}

// From the state all rows reached to the logits of the rows that want them.
void CudaExecutor::finish_wide(std::span<const exec::Row> rows, WidePass& pass, uint32_t stopped_at) {
  if (pass.pending.delta != nullptr) normalise(pass, nullptr, nullptr);
  std::vector<exec::Row> wanting;
  auto* index = staging_.as<uint32_t>() + 3 * plan_.chunk;  // upload_rows() uses what is before
  stream_.synchronise();                                    // the staging memory is free again
  for (uint32_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].wants_logits) continue;
    index[wanting.size()] = r;
    wanting.push_back(rows[r]);
  }
  const auto count = static_cast<uint32_t>(wanting.size());
  check(cudaMemcpyAsync(wide_.outputs, index, count * 4, cudaMemcpyHostToDevice, stream_.get()), "uploading outputs");
  gather_float_rows(wide_.x, wide_.outputs, count, widths_.d, out_.hidden, Launch{stream_.get(), false});
  mark(Step::kUpload, 0, count, false);
  if (stopped_at == widths_.L) {
    head_from_hidden();
    return;
  }
  if (count <= kMatvecRows && plan_.use_matvec) {
    fill_control(wanting, count);
    check(
        cudaMemcpyAsync(narrow_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice, stream_.get()),
        "uploading rows");
    NarrowPass narrow = begin_narrow(count);
    check(cudaMemcpyAsync(narrow_.x[0], out_.hidden, uint64_t{count} * widths_.d * sizeof(float),
                          cudaMemcpyDeviceToDevice, stream_.get()),
          "collecting outputs");
    for (uint32_t i = stopped_at; i < widths_.L; ++i) narrow_layer(i, narrow, i != stopped_at);
    narrow_head(narrow);
    return;
  }
  WidePass rest = begin_wide(wanting, widths_.L);
  rest.tiles_sliding = rest.tiles_global = 0;
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
