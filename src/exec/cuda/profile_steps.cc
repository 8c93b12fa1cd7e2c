#include "exec/cuda/profile_steps.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

double elements_of(const model::Matrix& matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols) * static_cast<double>(matrix.slices);
}

// Matrices that are multiplied with the same activations.
using Group = std::initializer_list<const model::Matrix*>;

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
        products({&tensors().attn_q, &tensors().attn_k, &tensors().attn_v}, form_of_projections());
        break;
      case Step::kQueries:
        products({&tensors().attn_q}, form_of_projections());
        break;
      case Step::kKeysValues:
        products({&tensors().attn_k, &tensors().attn_v}, form_of_projections());
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
        products({&tensors().attn_output}, form_of({&tensors().attn_output}), activation_bytes());
        break;
      case Step::kGateUp:
        gate_up();
        break;
      case Step::kDown:
        products({&tensors().ffn_down});
        break;
      case Step::kRouter:
        router();
        break;
      case Step::kGateUpRouter:
        gate_up();
        router();
        break;
      case Step::kExpertsUp:
        experts({&tensors().ffn_gate_up_exps, &tensors().ffn_gate_exps, &tensors().ffn_up_exps},
                packed_expert_gate_up(tensors()), expert_results());
        break;
      case Step::kExpertsDown:
        experts({&tensors().ffn_down_exps}, packed_expert_down(tensors()), config_.d);
        break;
      case Step::kPleGate:
        products({&tensors().inp_gate});
        break;
      case Step::kPleProject:
        products({&tensors().proj});
        break;
      case Step::kUnpack:
        work_.bytes += static_cast<double>(mark_.extent);
        break;
      case Step::kHead:
        products({&weights_.output});
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

  // How a product's weights and input lie in memory.
  enum class Form { kPacked, kPackedMmq, kBf16, kFp8 };

  bool by_mmq() const { return !mark_.narrow && plan_.gemm.kind == GemmKind::kMmq; }
  // Of one activation that is rounded for mmq: its own, and its share of the scale of 32 and, with `sums`, of their
  // sum.
  double mmq_bytes(bool sums) const {
    return static_cast<double>(plan_.gemm.activations) + (sums ? 2.0 : 1.0) * sizeof(float) / 32;
  }

  bool by_fp8() const { return !mark_.narrow && plan_.placement.resident_fp8; }
  // Of what a norm hands to the products: those of per-layer embeddings stay bf16, and they are one in three.
  double normed_bytes() const { return by_fp8() ? (config_.P > 0 ? 4.0 / 3.0 : 1.0) : activation_bytes(); }
  // Per-layer embeddings and the head are not among the products that become e4m3.
  bool stays_bf16(Group group) const {
    return std::any_of(group.begin(), group.end(), [&](const model::Matrix* matrix) {
      return matrix == &weights_.output || matrix == &tensors().inp_gate || matrix == &tensors().proj;
    });
  }

  // The same choice as CudaExecutor::product() makes.
  Form form_of(Group group) const {
    if (by_fp8() && !stays_bf16(group) && fp8_reads(group)) return Form::kFp8;
    if (mark_.narrow || (plan_.dequantise && wgmma_reads(group))) return Form::kPacked;
    return by_mmq() && mmq_reads(group) ? Form::kPackedMmq : Form::kBf16;
  }
  // All projections of a layer are one group, also where only some are wanted.
  Form form_of_projections() const { return form_of({&tensors().attn_q, &tensors().attn_k, &tensors().attn_v}); }

  static double stored_bytes(const model::Matrix& matrix, Form form) {
    if (form == Form::kFp8) return elements_of(matrix) + static_cast<double>(matrix.rows) * sizeof(float);
    return stored_bytes(matrix, form != Form::kBf16);
  }
  static double stored_bytes(const model::Matrix& matrix, bool packed) {
    if (!packed) return 2.0 * elements_of(matrix);
    return static_cast<double>(
        packed_matrix_bytes(packing_of(matrix.format), matrix.rows * matrix.slices, matrix.cols));
  }

  // `width` columns of one table row for each row of the pass, to fp32.
  void table_rows(const model::Matrix& table, double width) {
    const double row = static_cast<double>(packed_matrix_bytes(packing_of(table.format), table.rows, table.cols)) /
                       static_cast<double>(table.rows);
    work_.bytes += rows() * (row * width / static_cast<double>(table.cols) + 4.0 * width);
  }

  // Of one value of the input that products of this form read.
  double input_bytes(Group matrices, Form form) const {
    if (form == Form::kFp8) return 1.0;
    if (form != Form::kPackedMmq) return activation_bytes();
    return mmq_bytes(std::any_of(matrices.begin(), matrices.end(), [](const model::Matrix* matrix) {
      return !matrix->empty() && mmq_needs_sums(packing_of(matrix->format));
    }));
  }

  // Matrices over the same input: each is read once, the input once, each result written once.
  void products(Group matrices) { products(matrices, form_of(matrices)); }
  void products(Group matrices, Form form) { products(matrices, form, input_bytes(matrices, form)); }
  void products(Group matrices, Form form, double bytes_of_input) {
    double input = 0.0;
    for (const model::Matrix* matrix : matrices) {
      if (matrix->empty()) continue;
      input = static_cast<double>(matrix->cols);
      work_.bytes += stored_bytes(*matrix, form);
      work_.bytes += rows() * static_cast<double>(matrix->rows) * activation_bytes();
      work_.flops += 2.0 * rows() * elements_of(*matrix);
    }
    work_.bytes += rows() * input * bytes_of_input;
  }

  // One launch makes gelu(gate) * up of both results before they are written, where one packing holds both matrices.
  void gate_up() {
    const model::Matrix &gate = tensors().ffn_gate, &up = tensors().ffn_up;
    products({&gate, &up});
    const bool one_launch =
        !mark_.narrow && form_of({&gate, &up}) == Form::kPacked && packing_of(gate.format) == packing_of(up.format);
    if (one_launch) work_.bytes -= rows() * static_cast<double>(up.rows) * activation_bytes();
  }

  void per_layer_input() {
    const model::Matrix& projection = weights_.per_layer_model_proj;
    const double share = static_cast<double>(mark_.layer) / config_.L;
    const double width = static_cast<double>(mark_.layer) * config_.P;
    work_.bytes +=
        share * stored_bytes(projection, mark_.narrow) + rows() * (config_.d + 2.0 * width) * activation_bytes();
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
  void experts(Group matrices, bool readable, double results) {
    const double routed = rows() * config_.experts_used;
    const double share = std::min(1.0, routed / config_.experts);
    const bool packed = mark_.narrow || (plan_.warpgroup_experts && readable);
    double input = 0.0;
    for (const model::Matrix* matrix : matrices) {
      if (matrix->empty()) continue;
      input = static_cast<double>(matrix->cols);
      work_.bytes += share * stored_bytes(*matrix, packed);
      work_.flops += 2.0 * routed * elements_of(*matrix) / config_.experts;
    }
    work_.bytes += routed * (input + results) * activation_bytes();
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
