#include "exec/cuda/passes/megakernel_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "exec/cuda/plan/plan.h"

namespace carat::cuda {

namespace {

MegakernelPlanes planes_of(const PackedView& view) { return {view.quants, view.high, view.scales, view.super}; }

// For quotients by a multiplication: exact for numbers up to 2^32 / divisor. 0 for 1, which has no such number.
uint32_t inverse_of(uint32_t divisor) {
  return divisor == 1 ? 0 : static_cast<uint32_t>((uint64_t{1} << 32) / divisor + 1);
}

MegakernelProduct empty_product() {
  MegakernelProduct product{};
  product.scale = 1.0f;
  return product;
}

// Collects stages in order. What the residual stream still has to absorb is remembered and handed to the next stage
// that reads it, as in the other passes.
class StageList {
 public:
  StageList(const MegakernelModel& model, uint32_t blocks, uint32_t shared_memory)
      : model_(model),
        config_(model.config),
        weights_(model.weights),
        to_(model.buffers),
        blocks_(blocks),
        shared_memory_(shared_memory) {}

  MegakernelProgram build() {
    if (config_.P > 0) add_per_layer_inputs();
    for (const model::Layer& layer : config_.layers) add_layer(layer);
    MegakernelProduct head = reads_stream(weights_.output_norm);
    head.output = MegakernelOutput::kLogits;
    head.out = model_.logits;
    add_products(Step::kHead, head, weights_.head.parts);
    lay_out();
    const MegakernelBuild needed = needs();
    return {std::move(stages_), std::move(marks_), memory_, needed};
  }

 private:
  MegakernelBuild needs() const {
    const bool wide = config_.d > kMegakernelThreads * kMegakernelThreadColumns;
    MegakernelBuild needs{.packings = packing_set({weights_.token_embd.packing}),
                          .narrow = !wide,
                          .wide = wide,
                          .experts = config_.experts > 0};
    for (const MegakernelStage& stage : stages_) {
      if (stage.kind == MegakernelKind::kPerLayerInputs) needs.packings |= packing_set({stage.per_layer.table.packing});
      if (stage.kind != MegakernelKind::kProduct) continue;
      const MegakernelProduct& product = stage.product;
      (product.way == MegakernelWay::kTasks ? needs.packings : needs.per_layer) |= packing_set({product.packing});
    }
    return needs;
  }

  struct Pending {
    const TaggedWord* delta = nullptr;
    uint32_t version = 0;
    const float* norm = nullptr;
    const float* dense_norm = nullptr;
    const TaggedWord* experts = nullptr;
    uint32_t experts_version = 0;
    const float* experts_norm = nullptr;
    float scale = 1.0f;
  };

  // Once all products are known: the ring that suits them, and how each passes through it.
  void lay_out() {
    std::vector<MegakernelWeights> products;
    for (const MegakernelStage& stage : stages_) {
      if (stage.kind == MegakernelKind::kProduct) products.push_back(weights_of(stage.product));
    }
    memory_ = megakernel_memory(products, config_.d, blocks_, shared_memory_);
    CARAT_CHECK(memory_.slots > 0);
    slot_cycles_ = megakernel_slot_cycles(products, blocks_);
    for (MegakernelStage& stage : stages_) {
      if (stage.kind == MegakernelKind::kAttention)
        stage.attention.slot_shift = megakernel_cache_shift(memory_.slot_bytes);
      if (stage.kind != MegakernelKind::kProduct) continue;
      MegakernelProduct& product = stage.product;
      const MegakernelWeights weights = weights_of(product);
      choose_way(weights, product);
      product.tasks = product.rows / product.task.rows;
      product.deal = std::max(1u, weights.run / product.task.rows);
    }
  }

  // The products of the per-layer embeddings are in registers where there are few enough of a block's. A block may have
  // none of them: the products after them, of which it has some, are made before what it reads is written again.
  void choose_way(const MegakernelWeights& weights, MegakernelProduct& product) const {
    const uint32_t rows = product.way == MegakernelWay::kGate ? 1 : kMegakernelProjectRows;
    const uint32_t most =
        product.way == MegakernelWay::kGate ? kMegakernelGateRows : 2 * kMegakernelWarps / kMegakernelProjectRows;
    const bool narrow =
        product.way != MegakernelWay::kGate || config_.d <= kMegakernelThreads * kMegakernelThreadColumns;
    if (product.way != MegakernelWay::kTasks && narrow && megakernel_fits(weights, rows, memory_.slot_bytes) &&
        megakernel_share(weights, rows, blocks_) <= most) {
      product.task = {rows, 1, weights.steps};
      return;
    }
    product.way = MegakernelWay::kTasks;
    product.task = megakernel_tasks(weights, memory_.slot_bytes, blocks_, slot_cycles_);
  }

  static MegakernelWeights weights_of(const MegakernelProduct& product) {
    const uint32_t run = product.output == MegakernelOutput::kGegluEights ? 2 * kMegakernelEight
                         : is_geglu(product.output)                       ? 2
                                                                          : 1;
    return {product.packing, product.rows, run, product.steps,
            product.expert_steps != 0 ? product.expert_steps : product.steps};
  }

  // Of what is written to `buffer` next.
  uint32_t new_version(const void* buffer) {
    const uint32_t version = ++versions_[buffer];
    CARAT_CHECK(version <= kMegakernelVersions);
    return version;
  }

  MegakernelStage& add(MegakernelKind kind, Step step) {
    marks_.push_back({step, step == Step::kPleInput ? config_.L : layer_, 1, true});
    MegakernelStage stage{};
    stage.kind = kind;
    stage.number = static_cast<uint32_t>(stages_.size()) + 1;
    stages_.push_back(stage);
    return stages_.back();
  }

  // A product of the residual stream with everything pending absorbed.
  MegakernelProduct reads_stream(const float* next_norm) {
    MegakernelProduct product = empty_product();
    product.input = MegakernelInput::kResidual;
    product.columns = config_.d;
    product.next_norm = next_norm;
    product.in = pending_.delta;
    product.in_version = pending_.version;
    product.delta_norm = pending_.norm;
    product.dense_norm = pending_.dense_norm;
    product.experts = pending_.experts;
    product.experts_version = pending_.experts_version;
    product.experts_norm = pending_.experts_norm;
    product.scale = pending_.scale;
    pending_ = {};
    return product;
  }

  MegakernelProduct reads(MegakernelInput input, const void* from, uint32_t columns) const {
    MegakernelProduct product = empty_product();
    product.input = input;
    product.in = from;
    product.in_version = made_;
    product.columns = columns;
    return product;
  }

  // rows: of all parts.
  void push(Step step, MegakernelProduct product, std::span<const PackedView> parts, uint32_t rows) {
    product.packing = parts.front().packing;
    product.parts = static_cast<uint32_t>(parts.size());
    product.rows = rows;
    if (product.expert_steps == 0) product.steps = parts.front().steps;
    for (size_t i = 0; i < parts.size(); ++i) product.planes[i] = planes_of(parts[i]);
    if (product.version == 0) product.version = new_version(product.out);
    made_ = product.version;
    add(MegakernelKind::kProduct, step).product = product;
  }

  // Matrices over the same input, results one after the other in `product.out`. Neighbours of the same packing make one
  // stage; the others follow with the activations that are there, unless their kind differs.
  void add_products(Step step, MegakernelProduct product, std::span<const PackedView> parts) {
    size_t first = 0;
    while (first < parts.size()) {
      size_t end = first + 1;
      while (end < parts.size() && end - first < 3 && parts[end].packing == parts[first].packing) ++end;
      uint32_t rows = 0;
      for (size_t i = first; i < end; ++i) {
        rows += parts[i].rows;
        if (i - first < 2) product.part_end[i - first] = rows;
      }
      if (end - first == 1) product.part_end[1] = rows;
      push(step, product, parts.subspan(first, end - first), rows);
      product.version = made_;  // all of them make one vector
      if (end < parts.size()) {
        const bool same = is_float_packing(parts[end].packing) == is_float_packing(parts[first].packing);
        product.out = static_cast<TaggedWord*>(product.out) + rows;
        if (same) {
          product.input = MegakernelInput::kSame;
        } else if (product.input == MegakernelInput::kResidual) {
          product.in = nullptr;  // absorbed already
          product.experts = nullptr;
        }
      }
      first = end;
    }
  }

  void add_per_layer_inputs() {
    MegakernelProduct projection = reads_stream(nullptr);
    projection.out = to_.ple_projection;
    add_products(Step::kPleInput, projection, weights_.ple_projection.parts);
    MegakernelPerLayer ple{};
    ple.projection = to_.ple_projection;
    ple.projection_version = made_;
    ple.slices = config_.L;
    ple.P = config_.P;
    ple.table = weights_.ple_table;
    ple.norm = weights_.ple_norm;
    ple.projection_scale = 1.0f / std::sqrt(static_cast<float>(config_.d));
    ple.table_scale = std::sqrt(static_cast<float>(config_.P));
    ple.out = to_.ple;
    ple.version = ple_version_ = new_version(to_.ple);
    add(MegakernelKind::kPerLayerInputs, Step::kEmbed).per_layer = ple;
  }

  void add_attention(const model::Layer& layer) {
    const DeviceLayer& weights = weights_.layers[layer.index];
    MegakernelProduct qkv = reads_stream(weights.attn_norm);
    qkv.out = to_.qkv;
    add_products(Step::kQkv, qkv, weights[GroupKind::kQkv].parts);
    MegakernelAttention attention{};
    attention.shape = shape_of(config_, layer);
    attention.pairs = layer.sliding ? model_.pairs_sliding : model_.pairs_global;
    attention.first_pair = layer.sliding ? 0 : model_.pairs_sliding;
    attention.owns = layer.owns_kv;
    attention.v_from_k = layer.v_from_k;
    attention.lends = std::any_of(config_.layers.begin(), config_.layers.end(), [&](const model::Layer& other) {
      return !other.owns_kv && other.kv_source == layer.index;
    });
    attention.q_norm = weights.q_norm;
    attention.k_norm = layer.owns_kv ? weights.k_norm : weights.q_norm;
    attention.kv = model_.caches[layer.kv_source];
    attention.kv_stage = layer.owns_kv ? 0 : attention_stages_[layer.kv_source];
    attention.qkv = to_.qkv;
    attention.qkv_version = made_;
    attention.version = new_version(to_.attention);
    attention.most_splits = megakernel_splits(layer.Hkv, blocks_);
    attention.partial = to_.partial;
    attention.stats = to_.stats;
    attention.out = to_.attention;
    add(MegakernelKind::kAttention, Step::kAttention).attention = attention;
    attention_stages_[layer.index] = stages_.back().number;
    add(MegakernelKind::kCombine, Step::kHeads).attention = attention;
    made_ = attention.version;
    MegakernelProduct output = reads(MegakernelInput::kVector, to_.attention, layer.H * layer.hd);
    output.out = to_.attention_delta;
    add_products(Step::kAttentionOutput, output, weights[GroupKind::kAttentionOutput].parts);
    pending_ = {.delta = to_.attention_delta, .version = made_, .norm = weights.post_attention_norm};
  }

  void add_layer(const model::Layer& layer) {
    const DeviceLayer& weights = weights_.layers[layer.index];
    layer_ = layer.index;
    add_attention(layer);
    MegakernelProduct gate_up = reads_stream(weights.ffn_norm);
    const bool eights = layer.F > kMegakernelMostWords;
    gate_up.output = eights ? MegakernelOutput::kGegluEights : MegakernelOutput::kGeglu;
    gate_up.out = eights ? static_cast<void*>(to_.hidden_eights) : to_.hidden;
    if (layer.moe) {
      gate_up.router_weights = weights.router;
      gate_up.router_scale = weights.router_scale;
      gate_up.router = to_.router;
      gate_up.router_version = new_version(to_.router);
      gate_up.experts_total = config_.experts;
    }
    push(layer.moe ? Step::kGateUpRouter : Step::kGateUp, gate_up, weights[GroupKind::kGateUp].parts, 2 * layer.F);
    const uint32_t dense = made_;
    if (layer.moe) add_experts_up(weights);
    MegakernelProduct down = eights ? reads(MegakernelInput::kEights, to_.hidden_eights, layer.F)
                                    : reads(MegakernelInput::kVector, to_.hidden, layer.F);
    down.in_version = dense;
    down.out = to_.ffn_delta;
    const uint32_t experts = made_;
    add_products(Step::kDown, down, weights[GroupKind::kDown].parts);
    pending_ = {.delta = to_.ffn_delta, .version = made_, .norm = weights.post_ffw_norm};
    if (layer.moe) {
      pending_.dense_norm = weights.post_ffw_norm_1;
      add_experts_down(weights, experts);
      pending_.experts = to_.experts;
      pending_.experts_version = made_;
      pending_.experts_norm = weights.post_ffw_norm_2;
    }
    if (config_.P > 0) add_ple(layer.index);
    pending_.scale = weights.output_scale;
  }

  void add_ple(uint32_t index) {
    const DeviceLayer& weights = weights_.layers[index];
    MegakernelProduct gate = reads_stream(nullptr);
    gate.output = MegakernelOutput::kGeluTimes;
    gate.way = MegakernelWay::kGate;
    gate.out = to_.ple_gate;
    gate.factors = to_.ple + uint64_t{index} * config_.P;
    gate.factors_version = ple_version_;
    add_products(Step::kPleGate, gate, weights[GroupKind::kPleGate].parts);
    MegakernelProduct projection = reads(MegakernelInput::kVector, to_.ple_gate, config_.P);
    projection.out = to_.ple_delta;
    projection.way = MegakernelWay::kProject;
    add_products(Step::kPleProject, projection, weights[GroupKind::kPleProject].parts);
    pending_ = {.delta = to_.ple_delta, .version = made_, .norm = weights.post_norm};
  }

  void add_experts_up(const DeviceLayer& weights) {
    MegakernelProduct up = reads_stream(weights.pre_ffw_norm_2);
    up.router = to_.router;
    up.router_version = versions_[to_.router];
    up.experts_total = config_.experts;
    up.expert_scale = weights.expert_scale;
    up.output = MegakernelOutput::kGegluEights;
    up.out = to_.expert_hidden;
    up.expert_rows = config_.F_expert;
    up.expert_stride[0] = weights.expert_gate.stride;
    up.expert_stride[1] = weights.expert_up.stride;
    up.expert_offset[0] = weights.expert_gate.offset;
    up.expert_offset[1] = weights.expert_up.offset;
    const PackedView parts[2] = {weights.expert_gate.weights, weights.expert_up.weights};
    push(Step::kExpertsUp, up, parts, config_.experts_used * 2 * up.expert_rows);
  }

  void add_experts_down(const DeviceLayer& weights, uint32_t made) {
    MegakernelProduct down = reads(MegakernelInput::kEights, to_.expert_hidden, config_.F_expert);
    down.in_version = made;
    down.out = to_.experts;
    down.expert_steps = weights[GroupKind::kExpertDown].parts.front().steps;
    down.expert_inverse = inverse_of(kStep * down.expert_steps);
    down.steps = config_.experts_used * down.expert_steps;
    down.expert_stride[0] = config_.d;
    down.part_end[0] = down.part_end[1] = config_.d;
    push(Step::kExpertsDown, down, {&weights[GroupKind::kExpertDown].parts.front(), 1}, config_.d);
  }

  const MegakernelModel& model_;
  const model::Config& config_;
  const DeviceWeights& weights_;
  const MegakernelBuffers& to_;
  uint32_t blocks_, shared_memory_;
  MegakernelMemory memory_;
  uint32_t slot_cycles_ = 0;
  // The number of each layer's attention stage.
  std::vector<uint32_t> attention_stages_ = std::vector<uint32_t>(config_.L);
  std::map<const void*, uint32_t> versions_;  // of each buffer's newest contents
  uint32_t made_ = 0;                         // of the newest results
  uint32_t ple_version_ = 0;
  uint32_t layer_ = 0;
  Pending pending_;
  std::vector<MegakernelStage> stages_;
  std::vector<StepMark> marks_;
};

}  // namespace

MegakernelProgram megakernel_program(const MegakernelModel& model, uint32_t blocks, uint32_t shared_memory) {
  return StageList(model, blocks, shared_memory).build();
}

MegakernelJob megakernel_job(const MegakernelModel& model, const MegakernelProgram& program) {
  MegakernelJob job{};
  job.stages = static_cast<const MegakernelStage*>(model.buffers.stages);
  job.stage_count = static_cast<uint32_t>(program.stages.size());
  job.control.serial = model.buffers.serial;
  job.embedding = model.weights.token_embd;
  job.d = model.config.d;
  job.embedding_scale = std::sqrt(static_cast<float>(model.config.d));
  job.eps = model.config.eps;
  job.softcap = model.config.softcap;
  job.experts_used = model.config.experts_used;
  job.frequencies = model.frequencies;
  job.pairs = model.pairs_sliding + model.pairs_global;
  job.memory = program.memory;
  return job;
}

}  // namespace carat::cuda
