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

// Counts what one step does, given how its pass keeps weights and activations.
class StepWork {
 public:
  StepWork(const StepMark& mark, const PassRows& rows, const model::Model& model, quant::Format kv_format)
      : mark_(mark), pass_(rows), config_(model.config()), weights_(model.weights()), kv_(quant::info(kv_format)) {}

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
        // Stream in and out in fp32, the branch in and the norm out as activations.
        work_.bytes += rows() * config_.d * (8.0 + 2.0 * activation_bytes());
        break;
      case Step::kQkv:
        products({&tensors().attn_q, &tensors().attn_k, &tensors().attn_v});
        break;
      case Step::kQueries:
        products({&tensors().attn_q});
        break;
      case Step::kKeysValues:
        products({&tensors().attn_k, &tensors().attn_v});
        break;
      case Step::kHeads:
        heads();
        break;
      case Step::kAttention:
        attention();
        break;
      case Step::kAttentionOutput:
        products({&tensors().attn_output});
        break;
      case Step::kGateUp:
        products({&tensors().ffn_gate, &tensors().ffn_up});
        break;
      case Step::kDown:
        products({&tensors().ffn_down});
        break;
      case Step::kRouter:
        router();
        break;
      case Step::kExpertsUp:
        experts({&tensors().ffn_gate_up_exps, &tensors().ffn_gate_exps, &tensors().ffn_up_exps});
        break;
      case Step::kExpertsDown:
        experts({&tensors().ffn_down_exps});
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

  double stored_bytes(const model::Matrix& matrix) const {
    if (!mark_.narrow) return 2.0 * elements_of(matrix);
    return static_cast<double>(
        packed_matrix_bytes(packing_of(matrix.format), matrix.rows * matrix.slices, matrix.cols));
  }

  // `width` columns of one table row for each row of the pass, to fp32.
  void table_rows(const model::Matrix& table, double width) {
    const double row = static_cast<double>(packed_matrix_bytes(packing_of(table.format), table.rows, table.cols)) /
                       static_cast<double>(table.rows);
    work_.bytes += rows() * (row * width / static_cast<double>(table.cols) + 4.0 * width);
  }

  // Matrices over the same input: each is read once, the input once, each result written once.
  void products(std::initializer_list<const model::Matrix*> matrices) {
    double input = 0.0;
    for (const model::Matrix* matrix : matrices) {
      if (matrix->empty()) continue;
      input = static_cast<double>(matrix->cols);
      work_.bytes += stored_bytes(*matrix) + rows() * static_cast<double>(matrix->rows) * activation_bytes();
      work_.flops += 2.0 * rows() * elements_of(*matrix);
    }
    work_.bytes += rows() * input * activation_bytes();
  }

  void per_layer_input() {
    const model::Matrix& projection = weights_.per_layer_model_proj;
    const double share = static_cast<double>(mark_.layer) / config_.L;
    const double width = static_cast<double>(mark_.layer) * config_.P;
    work_.bytes += share * stored_bytes(projection) + rows() * (config_.d + 2.0 * width) * activation_bytes();
    work_.flops += 2.0 * rows() * width * config_.d;
    table_rows(weights_.per_layer_token_embd, width);
  }

  void heads() {
    const double in = (layer().H + 2.0 * layer().Hkv) * layer().hd;
    work_.bytes +=
        rows() * in * activation_bytes() + rows() * layer().hd * (layer().H * 2.0 + 2.0 * layer().Hkv * kv_bytes());
  }

  void attention() {
    const double width = static_cast<double>(layer().H) * layer().hd;
    const uint64_t count = std::min<uint64_t>(mark_.extent, pass_.count);
    const uint64_t first = pass_.first + (pass_.count - count);
    const uint64_t window = layer().sliding ? config_.W : UINT64_MAX;
    double pairs = 0.0;
    for (uint64_t position = first; position < first + count; ++position) {
      pairs += static_cast<double>(std::min(position + 1, window));
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

  // Rows go through the experts they are routed to; with few rows each of those is another one.
  void experts(std::initializer_list<const model::Matrix*> matrices) {
    const double routed = rows() * config_.experts_used;
    const double share = std::min(1.0, routed / config_.experts);
    for (const model::Matrix* matrix : matrices) {
      if (matrix->empty()) continue;
      const double width = static_cast<double>(matrix->rows + matrix->cols);
      work_.bytes += share * stored_bytes(*matrix) + routed * width * activation_bytes();
      work_.flops += 2.0 * routed * elements_of(*matrix) / config_.experts;
    }
  }

  const StepMark& mark_;
  const PassRows& pass_;
  const model::Config& config_;
  const model::Weights& weights_;
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

Work work_of(const StepMark& mark, const PassRows& rows, const model::Model& model, quant::Format kv_format) {
  return StepWork(mark, rows, model, kv_format).count();
}

}  // namespace carat::cuda
