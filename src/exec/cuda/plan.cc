#include "exec/cuda/plan.h"

#include <algorithm>

#include "exec/cuda/buffers.h"
#include "exec/cuda/kernels/attention.h"
#include "exec/cuda/kernels/matvec.h"

namespace carat::cuda {

namespace {

constexpr uint64_t kWorkspace = uint64_t{64} << 20;

uint32_t round_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

std::vector<KvGroupPlan> kv_groups(const model::Config& config, uint32_t context, uint32_t chunk, uint32_t sequences) {
  std::vector<KvGroupPlan> groups;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    const uint32_t slots = kv_slots(config, layer, context, chunk);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const KvGroupPlan& g) {
      return g.sliding == layer.sliding && g.Hkv == layer.Hkv && g.hd == layer.hd;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {layer.sliding, 0, layer.Hkv, layer.hd, slots, 0});
    ++group->layers;
    // One sequence more than asked for: rows that pad a decode graph to its bucket write there.
    group->bytes += uint64_t{2} * 2 * (sequences + 1) * layer.Hkv * slots * layer.hd;
  }
  return groups;
}

uint64_t largest_group_elements(const model::Model& model) {
  uint64_t largest = 0;
  for (const model::LayerWeights& layer : model.weights().layers) {
    const auto elements = [](const model::Matrix& m) { return m.rows * m.cols * m.slices; };
    largest = std::max({largest, elements(layer.attn_q) + elements(layer.attn_k) + elements(layer.attn_v),
                        elements(layer.ffn_gate) + elements(layer.ffn_up), elements(layer.ffn_down),
                        elements(layer.attn_output), elements(layer.ffn_gate_up_exps),
                        elements(layer.ffn_gate_exps) + elements(layer.ffn_up_exps), elements(layer.ffn_down_exps)});
  }
  return std::max(largest, model.weights().per_layer_model_proj.rows * model.weights().per_layer_model_proj.cols);
}

void add_up(Plan& plan, const model::Model& model, const GpuFacts& gpu) {
  const model::Config& config = model.config();
  plan.kv = kv_groups(config, plan.context, plan.chunk, plan.sequences);
  plan.kv_bytes = 0;
  for (const KvGroupPlan& group : plan.kv) plan.kv_bytes += group.bytes;
  Carver carver;
  const Widths widths(config);
  WideBuffers wide;
  wide.carve(carver, widths, plan.chunk, plan.outputs);
  NarrowBuffers narrow;
  narrow.carve(carver, widths);
  OutputBuffers outputs;
  outputs.carve(carver, widths, plan.outputs, attention_partial_elements(config, plan, gpu.sm_count),
                attention_counters(config, plan));
  plan.scratch_bytes = carver.used();
  // Without resident copies each matrix product first unpacks its weights into this.
  if (!plan.placement.resident_bf16) plan.scratch_bytes += largest_group_elements(model) * 2;
  plan.workspace_bytes = kWorkspace;
  plan.total_bytes = plan.weights.packed + plan.weights.vectors + plan.kv_bytes + plan.scratch_bytes + plan.workspace_bytes +
                     plan.reserve_bytes;
  if (plan.placement.resident_bf16) plan.total_bytes += plan.weights.bf16;
  if (plan.placement.ple_on_device) plan.total_bytes += plan.weights.ple_table;
  plan.fits = plan.total_bytes <= plan.free_bytes;
}

uint32_t largest_context(Plan plan, const model::Model& model, const GpuFacts& gpu) {
  uint32_t low = 0, high = model.config().context_length / 64 + 1;  // in units of 64: low fits, high does not
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    plan.context = middle * 64;
    add_up(plan, model, gpu);
    (plan.fits ? low : high) = middle;
  }
  return low * 64;
}

}  // namespace

uint32_t kv_slots(const model::Config& config, const model::Layer& layer, uint32_t context, uint32_t chunk) {
  const uint32_t positions = layer.sliding ? std::min(context, config.W - 1 + chunk) : context;
  return round_up(positions, 64);
}

uint64_t attention_partial_elements(const model::Config& config, const Plan& plan, uint32_t sm_count) {
  uint64_t most = 0;
  for (const model::Layer& layer : config.layers) {
    const AttentionShape shape{layer.H, layer.Hkv, layer.hd, layer.sliding ? config.W : 0};
    for (const uint32_t rows : {1u, 2u, 4u, 8u, plan.outputs}) {
      const uint32_t splits = attention_decode_splits(shape, rows, plan.context, sm_count);
      most = std::max(most, attention_decode_scratch(shape, rows, splits));
    }
  }
  return most;
}

uint32_t attention_counters(const model::Config& config, const Plan& plan) {
  uint32_t heads = 0;
  for (const model::Layer& layer : config.layers) heads = std::max(heads, layer.Hkv);
  return heads * std::max(plan.outputs, kMatvecRows);
}

Plan make_plan(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request) {
  Plan plan{};
  plan.context = request.context;
  plan.sequences = request.sequences;
  plan.outputs = std::max(request.outputs, kMatvecRows);
  plan.free_bytes = gpu.free_bytes;
  plan.reserve_bytes = std::max<uint64_t>(uint64_t{256} << 20, gpu.total_bytes / 100);
  plan.weights = weight_bytes(model, 0);

  const auto wish = [&](std::string_view slot) { return request.kernels.find(slot); };
  const auto decide = [&](std::string slot, std::string name, std::string reason) {
    plan.kernels.push_back({std::move(slot), std::move(name), std::move(reason)});
  };

  // From the most comfortable placement to the tightest; the first that fits is taken.
  struct Try {
    bool bf16, ple;
    uint32_t chunk;
  };
  std::vector<Try> tries;
  const uint32_t roomy = std::min(round_up(request.context, 64), 4096u);
  for (const Try& t : {Try{true, true, roomy}, Try{true, true, 2048}, Try{true, true, 512}, Try{false, true, 2048},
                       Try{false, true, 512}, Try{false, false, 2048}, Try{false, false, 512}, Try{false, false, 128}}) {
    tries.push_back({t.bf16, t.ple, request.chunk != 0 ? request.chunk : std::min(t.chunk, roomy)});
  }
  if (wish("gemm.weights") == "unpacked") {
    std::erase_if(tries, [](const Try& t) { return t.bf16; });
  }
  for (const Try& t : tries) {
    plan.placement = {.first_layer = 0, .resident_bf16 = t.bf16, .ple_on_device = t.ple};
    plan.chunk = t.chunk;
    add_up(plan, model, gpu);
    if (plan.fits) break;
  }
  plan.largest_context = largest_context(plan, model, gpu);

  decide("gemm.weights", plan.placement.resident_bf16 ? "resident" : "unpacked",
         wish("gemm.weights") ? "asked for"
         : plan.placement.resident_bf16 ? "a bf16 copy of the weights fits"
                                        : "no room for a bf16 copy: each product unpacks its weights first");
  plan.use_matvec = wish("decode") != "gemm";
  decide("decode", plan.use_matvec ? "matvec" : "gemm", wish("decode") ? "asked for" : "reads each quantised weight once");
  plan.use_graphs = wish("launch") != "single";
  decide("launch", plan.use_graphs ? "graph" : "single", wish("launch") ? "asked for" : "one launch per token");
  plan.overlap = gpu.capability >= 90 && wish("overlap") != "off";
  decide("overlap", plan.overlap ? "on" : "off",
         wish("overlap")          ? "asked for"
         : gpu.capability >= 90 ? "weights are read ahead while the kernel before is still running"
                                : "needs compute capability 9.0");
  return plan;
}

}  // namespace carat::cuda
