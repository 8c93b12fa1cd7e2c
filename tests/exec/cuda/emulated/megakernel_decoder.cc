#include "exec/cuda/emulated/megakernel_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "exec/cuda/emulated/megakernel.h"
#include "exec/cuda/plan/megakernel_choice.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/plan/rope_frequencies.h"
#include "support/random.h"

namespace carat::cuda::emulated {
namespace {

// What a plan would refuse is refused here.
std::shared_ptr<const model::Model> accepted(std::shared_ptr<const model::Model> model,
                                             const MegakernelDecoder::Chip& chip) {
  GpuFacts gpu;
  gpu.capability = 90, gpu.sm_count = chip.blocks, gpu.shared_memory = chip.shared_memory;
  const std::string why = megakernel_obstacle(*model, gpu, {});
  if (!why.empty()) throw std::invalid_argument("the token kernel cannot run the model: " + why);
  return model;
}

}  // namespace

MegakernelDecoder::MegakernelDecoder(std::shared_ptr<const model::Model> model, uint32_t context, uint32_t sequences,
                                     Chip chip)
    : model_(accepted(std::move(model), chip)),
      chip_(chip),
      sequences_(sequences),
      geometry_(kv_geometry(model_->config(), context, 1)),
      weights_(*model_, {}, ProductPaths(model_->config().L), {}) {
  const model::Config& config = model_->config();
  const Widths widths(config);
  Carver measure;
  buffers_.carve(measure, widths, config, chip_.blocks);
  exchanged_ = DeviceMemory(measure.used(), "what blocks exchange");
  std::memset(exchanged_.data(), 0, exchanged_.bytes());
  Carver carver(exchanged_.data());
  buffers_.carve(carver, widths, config, chip_.blocks);

  caches_.resize(config.L);
  uint64_t halves = 0;
  const auto halves_of = [&](const model::Layer& layer) { return geometry_.rows(layer.index, sequences) * layer.hd; };
  for (const model::Layer& layer : config.layers) halves += layer.owns_kv ? 2 * halves_of(layer) : 0;
  cache_memory_ = DeviceMemory(halves * sizeof(__half), "the KV cache");  // NaN, where nobody has written
  auto* next = cache_memory_.as<__half>();
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    KvView& cache = caches_[layer.index];
    cache.cells = geometry_.cells(layer.index);
    cache.k = std::exchange(next, next + halves_of(layer));
    cache.v = std::exchange(next, next + halves_of(layer));
  }

  frequencies_ = inverse_frequencies(*model_, true);
  const auto pairs_sliding = static_cast<uint32_t>(frequencies_.size());
  const std::vector<double> global = inverse_frequencies(*model_, false);
  frequencies_.insert(frequencies_.end(), global.begin(), global.end());
  logits_.resize(config.V);
  const MegakernelModel described{config,
                                  weights_,
                                  buffers_,
                                  caches_,
                                  frequencies_.data(),
                                  pairs_sliding,
                                  static_cast<uint32_t>(global.size()),
                                  logits_.data()};
  program_ = megakernel_program(described, chip_.blocks, chip_.shared_memory);
  std::memcpy(buffers_.stages, program_.stages.data(), program_.stages.size() * sizeof(MegakernelStage));
  job_ = megakernel_job(described, program_);
  job_.non_finite = &non_finite_;
}

void MegakernelDecoder::fill_caches(uint32_t length, uint64_t seed) {
  // A prime number of different values: no two rows are the same.
  const std::vector<float> normals = test::Random(seed).normals(10007);
  const auto halves = std::span(cache_memory_.as<__half>(), cache_memory_.bytes() / sizeof(__half));
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = __float2half_rn(normals[i % normals.size()]);
  constexpr uint32_t kNext = 8;
  for (const model::Layer& layer : model_->config().layers) {
    if (!layer.owns_kv) continue;
    const KvView& cache = caches_[layer.index];
    for (uint32_t sequence = 0; sequence < sequences_; ++sequence) {
      for (uint32_t kv_head = 0; kv_head < layer.Hkv; ++kv_head) {
        for (uint32_t position = length; position < length + kNext; ++position) {
          const uint64_t row = geometry_.row(layer.index, sequence, kv_head, position);
          std::fill_n(cache.k + row * layer.hd, layer.hd, __float2half_rn(NAN));
          std::fill_n(cache.v + row * layer.hd, layer.hd, __float2half_rn(NAN));
        }
      }
    }
  }
}

std::vector<float> MegakernelDecoder::step(int32_t token, uint32_t position, uint32_t sequence, uint64_t seed) {
  logits_.assign(logits_.size(), NAN);
  job_.control.token = &token, job_.control.position = &position, job_.control.sequence = &sequence;
  run_megakernel(job_, program_.needs, chip_.blocks, seed);
  return logits_;
}

}  // namespace carat::cuda::emulated
