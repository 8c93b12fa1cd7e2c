#include "cli/reports/machine_limits.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace carat::cli {

namespace {
constexpr uint64_t kLeastProbe = uint64_t{4} << 20;
constexpr uint64_t kLargestProbe = uint64_t{512} << 20;  // far beyond any cache
constexpr double kProbeSeconds = 0.3;

double matrix_bytes(const model::Matrix& matrix) { return static_cast<double>(matrix.data.size()); }

double row_bytes(const model::Matrix& matrix) { return matrix.empty() ? 0.0 : static_cast<double>(matrix.row_bytes()); }

// Independent sums, so that the loads and not the additions are what is measured.
uint64_t sum(std::span<const uint64_t> values) {
  std::array<uint64_t, 16> sums{};
  size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += values[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t lane : sums) total += lane;
  for (; i < values.size(); ++i) total += values[i];
  return total;
}
}  // namespace

double decode_bytes(const model::Model& model, double positions, quant::Format kv_format) {
  const model::Config& config = model.config();
  const model::Weights& weights = model.weights();
  const quant::FormatInfo& kv = quant::info(kv_format);
  const double kv_value_bytes = static_cast<double>(kv.bytes) / kv.block;
  const double routed = config.experts == 0 ? 0.0 : static_cast<double>(config.experts_used) / config.experts;

  double bytes = matrix_bytes(weights.output) + matrix_bytes(weights.per_layer_model_proj) +
                 row_bytes(weights.token_embd) + row_bytes(weights.per_layer_token_embd);
  for (const model::Layer& layer : config.layers) {
    const model::LayerWeights& w = weights.layers[layer.index];
    for (const model::Matrix* matrix : {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_gate, &w.ffn_up,
                                        &w.ffn_down, &w.inp_gate, &w.proj, &w.ffn_gate_inp}) {
      bytes += matrix_bytes(*matrix);
    }
    for (const model::Matrix* matrix : {&w.ffn_gate_up_exps, &w.ffn_gate_exps, &w.ffn_up_exps, &w.ffn_down_exps}) {
      bytes += routed * matrix_bytes(*matrix);
    }
    const double visible = layer.sliding ? std::min<double>(positions, config.W) : positions;
    bytes += visible * 2.0 * layer.Hkv * layer.hd * kv_value_bytes;
  }
  return bytes;
}

double read_bandwidth(unsigned threads, uint64_t bytes) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(threads);
  const size_t count = std::clamp(bytes, kLeastProbe, kLargestProbe) / sizeof(uint64_t);
  std::vector<uint64_t> buffer(count, 1);
  const size_t share = count / pool.size();
  std::atomic<uint64_t> total{0};  // used below, so that the reads cannot be optimised away
  double best = 0.0;
  const auto start = Clock::now();
  do {
    const auto pass_start = Clock::now();
    pool.run([&](unsigned worker) { total += sum(std::span(buffer).subspan(worker * share, share)); });
    const double seconds = std::chrono::duration<double>(Clock::now() - pass_start).count();
    best = std::max(best, static_cast<double>(share * pool.size() * sizeof(uint64_t)) / seconds);
  } while (std::chrono::duration<double>(Clock::now() - start).count() < kProbeSeconds);
  return total.load() == 0 ? 0.0 : best;
}

}  // namespace carat::cli
