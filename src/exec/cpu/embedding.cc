#include "exec/cpu/embedding.h"

#include <cmath>

namespace carat::exec::cpu {

Embedding::Embedding(const model::Model& model, const Workers& workers, uint32_t cut, bool int16)
    : model_(&model), workers_(workers), cut_(cut), int16_(int16) {
  const model::Config& config = model.config();
  if (config.P == 0) return;
  const model::Matrix& projection = model.weights().per_layer_model_proj;
  const uint64_t rows_before = uint64_t{config.P} * cut;
  if (rows_before > 0) before_ = WeightMatrix(*workers.kernels, projection.rows_of(0, 0, rows_before), int16);
  if (rows_before < projection.rows) {
    from_ = WeightMatrix(*workers.kernels, projection.rows_of(0, rows_before, projection.rows - rows_before), int16);
  }
  for (unsigned worker = 0; worker < workers.pool->size(); ++worker)
    token_row_.emplace_back(size_t{config.P} * config.L);
}

void Embedding::tokens(std::span<const Row> rows, float* x) const {
  const model::Config& config = model_->config();
  const model::Matrix& table = model_->weights().token_embd;
  const auto dequantise = quant::info(table.format).dequantise;
  workers_.for_each_row(static_cast<uint32_t>(rows.size()), [&](uint32_t row, unsigned) {
    float* out = x + size_t{row} * config.d;
    dequantise(table.row(static_cast<uint64_t>(rows[row].token)).data(), out, config.d);
    workers_.kernels->scale(out, config.embedding_scale(), config.d);
  });
}

void Embedding::layers_before_cut(std::span<const Row> rows, const float* x, ActivationBuffer& inputs, float* ple) {
  if (!before_.empty()) project(before_, 0, rows, x, inputs, ple);
}

void Embedding::layers_from_cut(std::span<const Row> rows, const float* x, ActivationBuffer& inputs, float* ple) {
  if (!from_.empty()) project(from_, cut_, rows, x, inputs, ple);
}

void Embedding::project(const WeightMatrix& projection, uint32_t first_layer, std::span<const Row> rows, const float* x,
                        ActivationBuffer& inputs, float* ple) {
  const model::Config& config = model_->config();
  const model::Matrix& table = model_->weights().per_layer_token_embd;
  const auto dequantise = quant::info(table.format).dequantise;
  const uint32_t count = static_cast<uint32_t>(rows.size());
  const uint32_t P = config.P;
  const size_t stride = size_t{P} * config.L;
  const size_t first = size_t{P} * first_layer;
  inputs.set_source(x, config.d, count, config.d, int16_);
  workers_.prepare_rows(inputs, projection.quantised(), [](uint32_t, unsigned) {});
  workers_.multiplier->run({&projection, &inputs.view(), ple + first, stride});

  const float projection_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d)));
  const float token_scale = static_cast<float>(std::sqrt(static_cast<double>(P)));
  const float mean_scale = static_cast<float>(1.0 / std::sqrt(2.0));
  workers_.for_each_row(count, [&](uint32_t row, unsigned worker) {
    float* token = token_row_[worker].data();
    // The whole row: a slice of it may begin inside a block.
    dequantise(table.row(static_cast<uint64_t>(rows[row].token)).data(), token, stride);
    for (size_t at = first; at < first + projection.rows(); at += P) {
      float* slice = ple + row * stride + at;
      workers_.kernels->scale(slice, projection_scale, P);
      workers_.kernels->rms_norm(slice, model_->weights().per_layer_proj_norm.data(), config.eps, P, slice);
      workers_.kernels->add_scaled(token + at, token_scale, P, slice);
      workers_.kernels->scale(slice, mean_scale, P);
    }
  });
}

}  // namespace carat::exec::cpu
