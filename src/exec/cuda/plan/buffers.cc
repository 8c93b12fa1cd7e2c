#include "exec/cuda/plan/buffers.h"

#include <algorithm>

namespace carat::cuda {

namespace {

QuantisedRows take_quantised(Carver& carver, uint64_t rows, uint32_t cols) {
  const uint64_t steps = steps_of(cols);
  QuantisedRows taken{};
  taken.words = carver.take<uint32_t>(rows * steps * kStepWords);
  taken.meta = carver.take<BlockMeta>(rows * steps * kStepBlocks);
  taken.values = carver.take<float>(rows * steps * kStep);
  return taken;
}

}  // namespace

Widths::Widths(const model::Config& config)
    : d(config.d),
      L(config.L),
      P(config.P),
      V(config.V),
      experts(config.experts),
      used(config.experts_used),
      F_expert(config.F_expert) {
  for (const model::Layer& layer : config.layers) {
    qkv = std::max(qkv, (layer.H + 2 * layer.Hkv) * layer.hd);
    q = std::max(q, layer.H * layer.hd);
    F = std::max(F, layer.F);
    uint32_t& pairs = layer.sliding ? pairs_sliding : pairs_global;
    pairs = std::max(pairs, layer.hd / 2);
  }
}

void RowArrays::carve(Carver& carver, const Widths& w, uint32_t rows) {
  tokens = nullptr;
  positions = sequences = nullptr;
  rope_sliding = carver.take<float2>(uint64_t{rows} * w.pairs_sliding);
  rope_global = carver.take<float2>(uint64_t{rows} * w.pairs_global);
}

uint64_t PromptControl::carve(void* base, const Extent& extent) {
  Carver carver(base);
  tokens = carver.take<int32_t>(extent.rows);
  positions = carver.take<uint32_t>(extent.rows);
  sequences = carver.take<uint32_t>(extent.rows);
  tiles_sliding = carver.take<Segment>(extent.tiles_sliding);
  tiles_global = carver.take<Segment>(extent.tiles_global);
  outputs = carver.take<uint32_t>(extent.outputs);
  ple_places = carver.take<int32_t>(extent.cached_ple ? extent.rows : 0);
  ple_fetches = carver.take<PleFetch>(extent.cached_ple ? extent.rows : 0);
  return carver.used();
}

void HostResults::carve(Carver& carver, uint32_t outputs) {
  const uint64_t n = outputs;
  non_finite = carver.take<uint32_t>(n);
  tokens = carver.take<int32_t>(n * kSelectMax);
  values = carver.take<float>(n * kSelectMax);
  counts = carver.take<uint32_t>(n);
  wanted = carver.take<int32_t>(kSelectMax);
  wanted_values = carver.take<float>(kSelectMax);
  log_sums = carver.take<LogSumPart>(n * kLogSumParts);
}

uint64_t prompt_control_bytes(uint32_t rows, uint32_t outputs) {
  return PromptControl{}.carve(nullptr, {rows, rows, rows, outputs, true});
}

void PromptBuffers::carve(Carver& carver, const Widths& w, uint32_t row_count, uint32_t output_count) {
  const uint64_t n = row_count;
  rows.carve(carver, w, row_count);
  control = carver.take<unsigned char>(prompt_control_bytes(row_count, output_count));
  x = carver.take<float>(n * w.d);
  normed = carver.take<__nv_bfloat16>(n * w.d);
  qkv = carver.take<__nv_bfloat16>(n * w.qkv);
  q = carver.take<__half>(n * w.q);
  attention = carver.take<__nv_bfloat16>(n * w.q);
  delta = carver.take<__nv_bfloat16>(n * w.d);
  gate_up = carver.take<__nv_bfloat16>(n * 2 * w.F);
  act = carver.take<__nv_bfloat16>(n * w.F);
  ple_projection = carver.take<__nv_bfloat16>(n * w.L * w.P);
  ple = carver.take<float>(n * w.L * w.P);
  ple_gate = carver.take<__nv_bfloat16>(n * w.P);
  ple_act = carver.take<__nv_bfloat16>(n * w.P);
  const uint64_t m = w.experts == 0 ? 0 : n;
  router_in = carver.take<float>(m * w.d);
  router_logits = carver.take<float>(m * w.experts);
  expert_ids = carver.take<uint32_t>(m * w.used);
  expert_offsets = carver.take<uint32_t>(w.experts + 1);
  expert_source = carver.take<uint32_t>(m * w.used);
  expert_place = carver.take<uint32_t>(m * w.used);
  expert_weights = carver.take<float>(m * w.used);
  expert_in = carver.take<__nv_bfloat16>(m * w.d);
  expert_gate_up = carver.take<__nv_bfloat16>(m * w.used * 2 * w.F_expert);
  expert_act = carver.take<__nv_bfloat16>(m * w.used * w.F_expert);
  expert_out = carver.take<__nv_bfloat16>(m * w.used * w.d);
  experts = carver.take<__nv_bfloat16>(m * w.d);
}

void GemvBuffers::carve(Carver& carver, const Widths& w) {
  constexpr uint64_t n = DecodeControl::kRows;
  control = carver.take<DecodeControl>(1);
  rows.carve(carver, w, DecodeControl::kRows);
  rows.point_into(control);
  x[0] = carver.take<float>(n * w.d);
  x[1] = carver.take<float>(n * w.d);
  embedding = carver.take<float>(n * w.d);
  qkv = carver.take<float>(n * w.qkv);
  q = carver.take<__half>(n * w.q);
  attention = carver.take<float>(n * w.q);
  delta = carver.take<float>(n * w.d);
  gate_up = carver.take<float>(n * 2 * w.F);
  experts = carver.take<float>(n * w.d);
  ple_projection = carver.take<float>(n * w.L * w.P);
  ple = carver.take<float>(n * w.L * w.P);
  ple_gate = carver.take<float>(n * w.P);
  in = take_quantised(carver, n, std::max({w.d, w.q, w.P}));
  act = take_quantised(carver, n, w.F);
  const uint64_t m = w.experts == 0 ? 0 : n;
  expert_in = take_quantised(carver, m, w.d);
  expert_act = take_quantised(carver, m * w.used, w.F_expert);
  router_logits = carver.take<float>(m * w.experts);
  expert_ids = carver.take<uint32_t>(m * w.used);
  expert_weights = carver.take<float>(m * w.used);
}

void MegakernelBuffers::carve(Carver& carver, const Widths& w, const model::Config& config, uint32_t sm_count) {
  constexpr uint32_t kStagesPerLayer = 16, kStagesBesides = 8;  // more than there are, whatever formats are mixed
  stage_capacity = kStagesPerLayer * w.L + kStagesBesides;
  stages = carver.take<unsigned char>(uint64_t{stage_capacity} * kMegakernelStageBytes);
  serial = carver.take<uint32_t>(1);
  uint64_t shares = 0, widest_shares = 0;
  for (const model::Layer& layer : config.layers) {
    const uint64_t rows = uint64_t{layer.H} * megakernel_splits(layer.Hkv, sm_count);
    shares = std::max(shares, rows);
    widest_shares = std::max(widest_shares, rows * layer.hd);
  }
  qkv = carver.take<TaggedWord>(w.qkv);
  partial = carver.take<TaggedQuad>(widest_shares / 4);
  stats = carver.take<Tagged>(2 * shares);
  attention = carver.take<TaggedWord>(w.q);
  attention_delta = carver.take<TaggedWord>(w.d);
  ffn_delta = carver.take<TaggedWord>(w.d);
  ple_delta = carver.take<TaggedWord>(w.P == 0 ? 0 : w.d);
  hidden = carver.take<TaggedWord>(w.F);
  hidden_eights = carver.take<TaggedEight>(w.F / kMegakernelEight);
  ple_projection = carver.take<TaggedWord>(uint64_t{w.L} * w.P);
  ple = carver.take<TaggedWord>(uint64_t{w.L} * w.P);
  ple_gate = carver.take<TaggedWord>(w.P);
  router = carver.take<Tagged>(w.experts);
  expert_hidden = carver.take<TaggedEight>(uint64_t{w.used} * w.F_expert / kMegakernelEight);
  experts = carver.take<TaggedWord>(w.experts == 0 ? 0 : w.d);
}

void SkinnyBuffers::carve(Carver& carver, const Widths& w, uint32_t row_count) {
  if (row_count == 0) return;
  const uint64_t n = row_count;
  control = carver.take<SkinnyControl>(1);
  rows.carve(carver, w, row_count);
  rows.point_into(control);
  x[0] = carver.take<float>(n * w.d);
  x[1] = carver.take<float>(n * w.d);
  qkv = carver.take<float>(n * w.qkv);
  q = carver.take<__half>(n * w.q);
  attention = carver.take<float>(n * w.q);
  delta = carver.take<float>(n * w.d);
  gate_up = carver.take<float>(n * 2 * w.F);
  act = carver.take<float>(n * ((w.F + 3) / 4 * 4));
  ple_projection = carver.take<float>(n * w.L * w.P);
  ple = carver.take<float>(n * w.L * w.P);
  ple_gate = carver.take<float>(n * ((w.P + 3) / 4 * 4));
  in.tiles = skinny_tiles(row_count);
  in.fragments = carver.take<uint32_t>(skinny_fragment_words(steps_of(w.d), row_count));
  in.scale = carver.take<float>(n);
  act_largest = carver.take<uint32_t>(n);
  ple_largest = carver.take<uint32_t>(n);
  partial = carver.take<float>(kPartialFloats);
  counters = carver.take<uint32_t>(kPartialCounters);
}

void OutputBuffers::carve(Carver& carver, const Widths& w, uint32_t outputs, uint64_t attention_partial_elements,
                          uint32_t counters) {
  const uint64_t n = outputs;
  hidden = carver.take<float>(n * w.d);
  normed = carver.take<__nv_bfloat16>(n * w.d);
  logits = carver.take<float>(n * w.V);
  select.maxima = carver.take<float>(n * kSelectGroups);
  select.counters = carver.take<uint32_t>(n);
  attention_partial = carver.take<float>(attention_partial_elements);
  attention_counters = carver.take<uint32_t>(counters);
}

}  // namespace carat::cuda
