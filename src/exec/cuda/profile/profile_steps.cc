#include "exec/cuda/profile/profile_steps.h"

#include <algorithm>
#include <array>

#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

double elements_of(const model::Matrix& matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols) * static_cast<double>(matrix.slices);
}

// Counts what one step does, given how its pass keeps weights and activations.
class StepWork {
 public:
  StepWork(const StepMark& mark, const PassRows& rows, const model::Model& model, const Plan& plan)
      : mark_(mark),
        pass_(rows),
        config_(model.config()),
        weights_(model.weights()),
        plan_(plan),
        kv_(quant::info(plan.kv_format)) {}

  Work count() {
    switch (mark_.step) {
      case Step::kUpload:
        work_.bytes += rows() * sizeof(uint32_t) * 3;
        break;
      case Step::kEmbed:
        table_rows(weights_.token_embd, config_.d);
        break;
      case Step::kPleInput:
        per_layer_input();
        break;
      case Step::kNorm:
        // Stream in and out in fp32, the branch in as activations, the norm out as the products read it.
        work_.bytes += rows() * config_.d * (8.0 + activation_bytes() + (by_mmq() ? mmq_bytes(true) : normed_bytes()));
        break;
      case Step::kQkv:
        products(GroupKind::kQkv);
        break;
      case Step::kQueries:
        products(GroupKind::kQkv, 0, 1);
        break;
      case Step::kKeysValues:
        products(GroupKind::kQkv, 1, UINT32_MAX);
        break;
      case Step::kHeads:
        heads();
        break;
      case Step::kAttention:
        attention();
        break;
      case Step::kAttentionOutput:
        // Where mmq or e4m3 products read it, what attention left is rounded for them in this step: it comes in as it
        // was written.
        products(group_of(tensors(), GroupKind::kAttentionOutput), path_of(GroupKind::kAttentionOutput),
                 activation_bytes());
        break;
      case Step::kGateUp:
        gate_up();
        break;
      case Step::kDown:
        products(GroupKind::kDown);
        break;
      case Step::kRouter:
        router();
        break;
      case Step::kGateUpRouter:
        gate_up();
        router();
        break;
      case Step::kExpertsUp:
        experts(GroupKind::kExpertGateUp, expert_results());
        break;
      case Step::kExpertsDown:
        experts(GroupKind::kExpertDown, config_.d);
        break;
      case Step::kPleGate:
        products(GroupKind::kPleGate);
        break;
      case Step::kPleProject:
        products(GroupKind::kPleProject);
        break;
      case Step::kUnpack:
        work_.bytes += static_cast<double>(mark_.extent);
        break;
      case Step::kHead:
        head();
        break;
      case Step::kSelect:
        // Counted into bins, then collected from them.
        work_.bytes += rows() * config_.V * 4.0 * 2.0;
        break;
    }
    return work_;
  }

 private:
  const model::Layer& layer() const { return config_.layers[mark_.layer]; }
  const model::LayerWeights& tensors() const { return weights_.layers[mark_.layer]; }
  double rows() const { return static_cast<double>(mark_.extent); }
  double kv_bytes() const { return static_cast<double>(kv_.bytes) / kv_.block; }  // of one value in the cache
  double activation_bytes() const { return mark_.narrow ? 4.0 : 2.0; }

  bool by_mmq() const { return !mark_.narrow && plan_.gemm.kind == GemmKind::kMmq; }
  // Of one activation that is rounded for mmq: its own, and its share of the scale of 32 and, with `sums`, of their
  // sum.
  double mmq_bytes(bool sums) const {
    return static_cast<double>(plan_.gemm.activations) + (sums ? 2.0 : 1.0) * sizeof(float) / 32;
  }

  bool by_fp8() const { return !mark_.narrow && plan_.placement.resident_fp8; }
  // Of what a norm hands to the products: those of per-layer embeddings stay bf16, and they are one in three.
  double normed_bytes() const { return by_fp8() ? (config_.P > 0 ? 4.0 / 3.0 : 1.0) : activation_bytes(); }
  // What the products of a group read its weights as: decode steps by kernels read them as they are packed.
  ProductPath path_of(GroupKind kind) const {
    return mark_.narrow ? ProductPath::kGemv : plan_.products.of(mark_.layer, kind);
  }

  static double stored_bytes(const model::Matrix& matrix, ProductPath path) {
    switch (path) {
      case ProductPath::kBf16:
      case ProductPath::kUnpack:
        return 2.0 * elements_of(matrix);
      case ProductPath::kFp8:
        return elements_of(matrix) + static_cast<double>(matrix.rows) * sizeof(float);
      case ProductPath::kWgmma:
      case ProductPath::kMmq:
      case ProductPath::kGemv:
        break;
      case ProductPath::kFp32:
        return 4.0 * elements_of(matrix);
    }
    return static_cast<double>(
        packed_matrix_bytes(packing_of(matrix.format), matrix.rows * matrix.slices, matrix.cols));
  }

  // `width` columns of one table row for each row of the pass, to fp32.
  void table_rows(const model::Matrix& table, double width) {
    const double row = static_cast<double>(packed_matrix_bytes(packing_of(table.format), table.rows, table.cols)) /
                       static_cast<double>(table.rows);
    work_.bytes += rows() * (row * width / static_cast<double>(table.cols) + 4.0 * width);
  }

  // Of one value of the input that products of this path read.
  double input_bytes(const LayerGroup& group, ProductPath path) const {
    if (path == ProductPath::kFp8) return 1.0;
    if (path != ProductPath::kMmq) return activation_bytes();
    return mmq_bytes(std::any_of(group.begin(), group.end(), [](const model::Matrix* matrix) {
      return mmq_needs_sums(packing_of(matrix->format));
    }));
  }

  void products(GroupKind kind) {
    const LayerGroup group = group_of(tensors(), kind);
    products(group, path_of(kind), input_bytes(group, path_of(kind)));
  }
  // Matrices [first, last) of a group, which go the way of all.
  void products(GroupKind kind, uint32_t first, uint32_t last) {
    const LayerGroup group = group_of(tensors(), kind).part(first, last);
    products(group, path_of(kind), input_bytes(group, path_of(kind)));
  }
  // Matrices over the same input: each is read once, the input once, each result written once.
  void products(const LayerGroup& group, ProductPath path, double bytes_of_input) {
    for (const model::Matrix* matrix : group) {
      work_.bytes += stored_bytes(*matrix, path);
      work_.bytes += rows() * static_cast<double>(matrix->rows) * activation_bytes();
      work_.flops += 2.0 * rows() * elements_of(*matrix);
    }
    if (!group.empty()) work_.bytes += rows() * static_cast<double>(group[0].cols) * bytes_of_input;
  }

  // One launch makes gelu(gate) * up of both results before they are written, where one packing holds both matrices.
  void gate_up() {
    const model::Matrix &gate = tensors().ffn_gate, &up = tensors().ffn_up;
    products(GroupKind::kGateUp);
    const bool one_launch =
        path_of(GroupKind::kGateUp) == ProductPath::kWgmma && packing_of(gate.format) == packing_of(up.format);
    if (one_launch) work_.bytes -= rows() * static_cast<double>(up.rows) * activation_bytes();
  }

  void head() {
    const ProductPath path = mark_.narrow ? ProductPath::kGemv : plan_.products.head;
    work_.bytes += stored_bytes(weights_.output, path);
    work_.bytes += rows() * (config_.V + config_.d) * activation_bytes();
    work_.flops += 2.0 * rows() * elements_of(weights_.output);
  }

  void per_layer_input() {
    const model::Matrix& projection = weights_.per_layer_model_proj;
    const ProductPath path = mark_.narrow ? ProductPath::kGemv : plan_.products.ple_input;
    const double share = static_cast<double>(mark_.layer) / config_.L;
    const double width = static_cast<double>(mark_.layer) * config_.P;
    work_.bytes += share * stored_bytes(projection, path) + rows() * (config_.d + 2.0 * width) * activation_bytes();
    work_.flops += 2.0 * rows() * width * config_.d;
    table_rows(weights_.per_layer_token_embd, width);
  }

  void heads() {
    const double in = (layer().H + 2.0 * layer().Hkv) * layer().hd;
    work_.bytes +=
        rows() * in * activation_bytes() + rows() * layer().hd * (layer().H * 2.0 + 2.0 * layer().Hkv * kv_bytes());
  }

  // Of `visible` keys those a row multiplies: fewer in long prompts with sparse attention, where the chunk's end
  // decides. The choice itself looks at every key, so they all count as read.
  uint64_t visited(uint64_t visible, uint64_t end) const {
    if (mark_.narrow || layer().sliding || !plan_.sparse || end <= plan_.sparse->from) return visible;
    if (visible <= plan_.sparse->from) return visible;
    const auto blocks = static_cast<uint32_t>((visible + kSparseBlock - 1) / kSparseBlock);
    const uint64_t chosen =
        uint64_t{plan_.sparse->first} + plan_.sparse->recent + 1 + sparse_best_blocks(*plan_.sparse, blocks);
    return std::min(visible, chosen * kSparseBlock);
  }

  void attention() {
    const double width = static_cast<double>(layer().H) * layer().hd;
    const uint64_t count = std::min<uint64_t>(mark_.extent, pass_.count);
    const uint64_t first = pass_.first + (pass_.count - count);
    const uint64_t window = layer().sliding ? config_.W : UINT64_MAX;
    double pairs = 0.0;
    for (uint64_t position = first; position < first + count; ++position) {
      pairs += static_cast<double>(visited(std::min(position + 1, window), first + count));
    }
    const uint64_t seen =
        std::min(first + count, count - 1 + std::min(first + 1, window));  // keys of all rows together
    work_.bytes += static_cast<double>(seen) * layer().Hkv * layer().hd * 2.0 * kv_bytes();
    work_.bytes += rows() * width * (2.0 + activation_bytes());
    work_.flops += 4.0 * width * pairs;
  }

  void router() {
    const double size = elements_of(tensors().ffn_gate_inp);
    work_.bytes += 4.0 * (size + rows() * (config_.d + config_.experts));
    work_.flops += 2.0 * rows() * size;
  }

  // Results of an expert's gate and up that are written: one launch of the warpgroup kernel makes gelu(gate) * up of
  // both.
  double expert_results() const { return (!mark_.narrow && plan_.warpgroup_experts ? 1.0 : 2.0) * config_.F_expert; }

  // Rows go through the experts they are routed to; with few rows each of those is another one.
  void experts(GroupKind kind, double results) {
    const double routed = rows() * config_.experts_used;
    const double share = std::min(1.0, routed / config_.experts);
    const LayerGroup group = group_of(tensors(), kind);
    for (const model::Matrix* matrix : group) {
      work_.bytes += share * stored_bytes(*matrix, path_of(kind));
      work_.flops += 2.0 * routed * elements_of(*matrix) / config_.experts;
    }
    work_.bytes += routed * (static_cast<double>(group[0].cols) + results) * activation_bytes();
  }

  const StepMark& mark_;
  const PassRows& pass_;
  const model::Config& config_;
  const model::Weights& weights_;
  const Plan& plan_;
  const quant::FormatInfo& kv_;
  Work work_;
};

}  // namespace

std::string_view family_name(Family family) {
  constexpr std::array<std::string_view, kFamilies> kNames = {"row upload and waits",
                                                              "embedding",
                                                              "per-layer embeddings",
                                                              "norms and rotation",
                                                              "QKV",
                                                              "attention sliding",
                                                              "attention global",
                                                              "attention output",
                                                              "feed-forward",
                                                              "experts",
                                                              "weight unpacking",
                                                              "LM head",
                                                              "selection"};
  return kNames.at(static_cast<size_t>(family));
}

Family family_of(const StepMark& mark, const model::Config& config) {
  switch (mark.step) {
    case Step::kUpload:
      return Family::kUpload;
    case Step::kEmbed:
      return Family::kEmbedding;
    case Step::kPleInput:
    case Step::kPleGate:
    case Step::kPleProject:
      return Family::kPle;
    case Step::kNorm:
    case Step::kHeads:
      return Family::kNorms;
    case Step::kQkv:
    case Step::kQueries:
    case Step::kKeysValues:
      return Family::kQkv;
    case Step::kAttention:
      return config.layers[mark.layer].sliding ? Family::kAttentionSliding : Family::kAttentionGlobal;
    case Step::kAttentionOutput:
      return Family::kAttentionOutput;
    case Step::kGateUp:
    case Step::kGateUpRouter:
    case Step::kDown:
      return Family::kFeedForward;
    case Step::kRouter:
    case Step::kExpertsUp:
    case Step::kExpertsDown:
      return Family::kExperts;
    case Step::kUnpack:
      return Family::kUnpacking;
    case Step::kHead:
      return Family::kHead;
    case Step::kSelect:
      return Family::kSelection;
  }
  return Family::kSelection;
}

Work work_of(const StepMark& mark, const PassRows& rows, const model::Model& model, const Plan& plan) {
  return StepWork(mark, rows, model, plan).count();
}

}  // namespace carat::cuda
