#include "exec/reference/reference_executor.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "exec/paging/page_budget.h"
#include "exec/paging/paged_sequences.h"
#include "exec/reference/arithmetic.h"
#include "exec/reference/kv_cache.h"

namespace carat::exec {
namespace {

using model::Layer;
using model::LayerWeights;
using model::Matrix;
using reference::add;
using reference::Block;
using reference::geglu;
using reference::linear;
using reference::rms_norm;
using reference::rms_norm_heads;
using reference::Rotation;

// The rows still being computed and their state.
struct Pass {
  std::vector<Row> rows;
  std::vector<uint32_t> index;  // of each row in the call, for the trace
  Block x;                      // [rows, d] residual stream
  Block ple;                    // [rows, P * L]
};

// The rows that use one expert, and how much its output weighs in each.
struct ExpertRows {
  std::vector<size_t> rows;
  std::vector<double> weights;
};
using Routing = std::vector<ExpertRows>;  // [experts]

class ReferenceExecutor final : public Executor {
 public:
  ReferenceExecutor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options, Trace trace);

  std::string_view name() const override { return "reference"; }
  const model::Model& model() const override { return *model_; }
  const ExecutorOptions& options() const override { return options_; }
  bool rows_are_independent() const override { return true; }

  void forward(std::span<const Row> rows) override;

  uint32_t outputs() const override { return static_cast<uint32_t>(logits_.rows()); }
  bool is_finite(uint32_t output) const override { return finite_.at(output); }
  std::span<const float> logits(uint32_t output) override;
  void best(uint32_t output, uint32_t k, std::vector<Candidate>& out) override { select_best(logits(output), k, out); }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override;
  double log_sum_exp(uint32_t output) override { return exec::log_sum_exp(logits(output)); }

  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }
  KeptPrefixes* prefixes() override { return &table_; }

 private:
  Block run(std::span<const Row> rows);  // the logits, [outputs, V]

  Pass embed(std::span<const Row> rows);                              // 3.1
  Block per_layer_inputs(std::span<const Row> rows, const Block& x);  // 3.2
  void run_layer(const Layer& layer, Pass& pass);                     // 3.3
  Block attention(const Layer& layer, const Pass& pass);              // 3.3, first half: the attn_output projection
  void attend(const Layer& layer, const Row& row, std::span<const float> q, uint32_t head,
              std::span<float> out);  // 3.5
  Block feed_forward(const Matrix& gate, const Matrix& up, const Matrix& down, const Block& m);
  Routing route(const Layer& layer, const Block& h);  // 3.6, the router
  Block experts(const Layer& layer, const Block& h);  // 3.6, the expert branch before its norm
  Block head(Pass& pass);                             // 3.7

  void keep_rows_that_want_logits(Pass& pass) const;
  void check_not_cancelled() const;
  void trace(std::string_view stage, uint32_t layer, const Pass& pass, const Block& values) const;
  const Rotation& rotation(const Layer& layer) const { return layer.sliding ? sliding_rotation_ : global_rotation_; }

  std::shared_ptr<const model::Model> model_;
  const model::Config& config_;
  const model::Weights& weights_;
  ExecutorOptions options_;
  Trace trace_;
  ThreadPool pool_;
  model::KvPages pages_;
  PagedSequences table_;
  reference::KvCache cache_;
  Rotation sliding_rotation_;
  Rotation global_rotation_;
  Block logits_;              // [outputs, V] of the last pass
  std::vector<bool> finite_;  // [outputs]
};

uint32_t sliding_head_dimension(const model::Config& config) {
  const auto layer = std::find_if(config.layers.begin(), config.layers.end(), [](const Layer& l) { return l.sliding; });
  CARAT_CHECK(layer != config.layers.end());
  return layer->hd;
}

ReferenceExecutor::ReferenceExecutor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                     Trace trace)
    : model_(std::move(model)),
      config_(model_->config()),
      weights_(model_->weights()),
      options_(options),
      trace_(std::move(trace)),
      pool_(options.threads),
      pages_(config_, SequenceRules::checked(config_, options).context, options.chunk),
      table_(config_, options, pages_, page_budget(config_, options, pages_, sizeof(float), config_.L), sizeof(float)),
      cache_(config_, pages_, table_),
      sliding_rotation_(sliding_head_dimension(config_), config_.rope_base_sliding, {}),
      global_rotation_(config_.layers.back().hd, config_.rope_base_global, weights_.rope_freqs),
      logits_(0, config_.V) {
  options_.kernels.check_for(name());
  options_.kv_format = quant::Format::kF32;
}

void ReferenceExecutor::forward(std::span<const Row> rows) {
  table_.check(rows);
  cache_.copy(table_.begin(rows));
  logits_ = Block(0, config_.V);
  finite_.clear();
  try {
    logits_ = run(rows);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kOutOfMemory, "a pass of {} rows needs more memory than there is: a smaller batch (-ub) helps",
         rows.size());
  }
  table_.commit(rows);
}

Block ReferenceExecutor::run(std::span<const Row> rows) {
  Pass pass = embed(rows);
  for (const Layer& layer : config_.layers) {
    check_not_cancelled();
    // No later position reads what layers from n_kv on compute, so rows without logits may stop here.
    if (layer.index == config_.n_kv && options_.kv_share_shortcut) keep_rows_that_want_logits(pass);
    if (pass.rows.empty()) break;
    run_layer(layer, pass);
  }
  keep_rows_that_want_logits(pass);
  return head(pass);
}

Pass ReferenceExecutor::embed(std::span<const Row> rows) {
  const float scale = config_.embedding_scale();
  const auto dequantise = quant::info(weights_.token_embd.format).dequantise;
  Pass pass{{rows.begin(), rows.end()}, std::vector<uint32_t>(rows.size()), Block(rows.size(), config_.d), Block(0, 0)};
  std::iota(pass.index.begin(), pass.index.end(), 0u);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto x = pass.x.row(r);
    dequantise(weights_.token_embd.row(static_cast<uint64_t>(rows[r].token)).data(), x.data(), x.size());
    for (float& value : x) value *= scale;
  }
  trace("embedding", 0, pass, pass.x);
  if (config_.P > 0) {
    pass.ple = per_layer_inputs(rows, pass.x);
    trace("ple", 0, pass, pass.ple);
  }
  return pass;
}

Block ReferenceExecutor::per_layer_inputs(std::span<const Row> rows, const Block& x) {
  const double token_scale = std::sqrt(static_cast<double>(config_.P));
  const double projection_scale = 1.0 / std::sqrt(static_cast<double>(config_.d));
  const double mean_scale = 1.0 / std::sqrt(2.0);
  const auto dequantise = quant::info(weights_.per_layer_token_embd.format).dequantise;
  Block b = linear(pool_, weights_.per_layer_model_proj, x);
  for (size_t r = 0; r < b.rows(); ++r) {
    for (float& value : b.row(r)) value = static_cast<float>(value * projection_scale);
  }
  rms_norm_heads(b, config_.P, weights_.per_layer_proj_norm, config_.eps);
  std::vector<float> a(b.width());
  for (size_t r = 0; r < b.rows(); ++r) {
    dequantise(weights_.per_layer_token_embd.row(static_cast<uint64_t>(rows[r].token)).data(), a.data(), a.size());
    const auto ple = b.row(r);
    for (size_t i = 0; i < ple.size(); ++i) {
      ple[i] = static_cast<float>((ple[i] + a[i] * token_scale) * mean_scale);
    }
  }
  return b;
}

void ReferenceExecutor::run_layer(const Layer& layer, Pass& pass) {
  const LayerWeights& w = weights_.layers[layer.index];
  const float eps = config_.eps;

  Block h = rms_norm(attention(layer, pass), w.post_attention_norm, eps);
  add(h, pass.x);  // residual 1
  trace("attention", layer.index, pass, h);

  Block f = feed_forward(w.ffn_gate, w.ffn_up, w.ffn_down, rms_norm(h, w.ffn_norm, eps));
  if (layer.moe) {
    f = rms_norm(f, w.post_ffw_norm_1, eps);
    add(f, rms_norm(experts(layer, h), w.post_ffw_norm_2, eps));
  }
  Block y = rms_norm(f, w.post_ffw_norm, eps);
  add(y, h);  // residual 2
  trace("feed_forward", layer.index, pass, y);

  if (config_.P > 0) {
    Block slice(y.rows(), config_.P);  // of this layer
    for (size_t r = 0; r < y.rows(); ++r) {
      const auto ple = pass.ple.row(r).subspan(size_t{config_.P} * layer.index, config_.P);
      std::copy(ple.begin(), ple.end(), slice.row(r).begin());
    }
    const Block g = geglu(linear(pool_, w.inp_gate, y), slice);
    add(y, rms_norm(linear(pool_, w.proj, g), w.post_norm, eps));  // residual 3
  }
  for (size_t r = 0; r < y.rows(); ++r) {
    for (float& value : y.row(r)) value *= w.output_scale;
  }
  pass.x = std::move(y);
  trace("layer", layer.index, pass, pass.x);
}

Block ReferenceExecutor::attention(const Layer& layer, const Pass& pass) {
  const LayerWeights& w = weights_.layers[layer.index];
  const Block n = rms_norm(pass.x, w.attn_norm, config_.eps);
  Block q = linear(pool_, w.attn_q, n);
  rms_norm_heads(q, layer.hd, w.attn_q_norm, config_.eps);
  for (size_t r = 0; r < q.rows(); ++r) rotation(layer).apply(q.row(r), pass.rows[r].position);

  if (layer.owns_kv) {
    Block k = linear(pool_, w.attn_k, n);
    Block v = layer.v_from_k ? k : linear(pool_, w.attn_v, n);  // the raw projection, before norm and rotation
    rms_norm_heads(k, layer.hd, w.attn_k_norm, config_.eps);
    rms_norm_heads(v, layer.hd, {}, config_.eps);
    for (size_t r = 0; r < k.rows(); ++r) {
      const Row& row = pass.rows[r];
      rotation(layer).apply(k.row(r), row.position);
      for (uint32_t head = 0; head < layer.Hkv; ++head) {
        const auto key = k.row(r).subspan(size_t{head} * layer.hd, layer.hd);
        const auto value = v.row(r).subspan(size_t{head} * layer.hd, layer.hd);
        std::copy(key.begin(), key.end(), cache_.key(layer.index, row.sequence, head, row.position).begin());
        std::copy(value.begin(), value.end(), cache_.value(layer.index, row.sequence, head, row.position).begin());
      }
    }
  }

  Block o(q.rows(), q.width());
  pool_.parallel_for(q.rows() * layer.H, 1, [&](size_t begin, size_t end, unsigned) {
    for (size_t item = begin; item < end; ++item) {
      const size_t r = item / layer.H, head = item % layer.H;
      attend(layer, pass.rows[r], q.row(r).subspan(head * layer.hd, layer.hd), static_cast<uint32_t>(head),
             o.row(r).subspan(head * layer.hd, layer.hd));
    }
  });
  return linear(pool_, w.attn_output, o);
}

void ReferenceExecutor::attend(const Layer& layer, const Row& row, std::span<const float> q, uint32_t head,
                               std::span<float> out) {
  const uint32_t end = row.position + 1;
  const uint32_t begin = layer.sliding && end > config_.W ? end - config_.W : 0;
  const uint32_t kv_head = head / (layer.H / layer.Hkv);

  std::vector<double> weights(end - begin);
  for (uint32_t p = begin; p < end; ++p) {
    // The scale is 1: queries and keys are normalised.
    weights[p - begin] = reference::dot(q, cache_.key(layer.kv_source, row.sequence, kv_head, p));
  }
  reference::softmax(weights);
  std::vector<double> sums(layer.hd);
  for (uint32_t p = begin; p < end; ++p) {
    const auto v = cache_.value(layer.kv_source, row.sequence, kv_head, p);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += weights[p - begin] * v[i];
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]);
}

Block ReferenceExecutor::feed_forward(const Matrix& gate, const Matrix& up, const Matrix& down, const Block& m) {
  return linear(pool_, down, geglu(linear(pool_, gate, m), linear(pool_, up, m)));
}

Routing ReferenceExecutor::route(const Layer& layer, const Block& h) {
  const LayerWeights& w = weights_.layers[layer.index];
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.d));
  Block router_input = rms_norm(h, {}, config_.eps);
  for (size_t r = 0; r < router_input.rows(); ++r) {
    const auto row = router_input.row(r);
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(row[i] * scale * w.ffn_gate_inp_scale[i]);
  }
  const Block router_logits = linear(pool_, w.ffn_gate_inp, router_input);

  Routing routing(config_.experts);
  for (size_t r = 0; r < h.rows(); ++r) {
    std::vector<double> probability(router_logits.row(r).begin(), router_logits.row(r).end());
    reference::softmax(probability);
    // One value that is not finite makes the sum of all, and with it each probability, NaN, which has no order. The row
    // goes to the first experts with NaN for weights, so that its logits show what happened.
    const bool has_order = !std::isnan(probability[0]);
    std::vector<uint32_t> chosen(config_.experts);
    std::iota(chosen.begin(), chosen.end(), 0u);
    if (has_order) {
      std::stable_sort(chosen.begin(), chosen.end(),
                       [&](uint32_t a, uint32_t b) { return probability[a] > probability[b]; });
    }
    chosen.resize(config_.experts_used);
    double total = 0.0;  // at least used / experts, so there is nothing to guard against
    for (const uint32_t expert : chosen) total += probability[expert];
    for (const uint32_t expert : chosen) {
      routing[expert].rows.push_back(r);
      routing[expert].weights.push_back(probability[expert] / total * w.ffn_down_exps_scale[expert]);
    }
  }
  return routing;
}

Block ReferenceExecutor::experts(const Layer& layer, const Block& h) {
  const LayerWeights& w = weights_.layers[layer.index];
  const Routing routing = route(layer, h);
  const Block m = rms_norm(h, w.pre_ffw_norm_2, config_.eps);
  std::vector<double> sums(h.rows() * config_.d);
  // Expert by expert, so that each is dequantised once; a row therefore adds its experts in the order of their numbers.
  for (uint32_t expert = 0; expert < config_.experts; ++expert) {
    const ExpertRows& used_by = routing[expert];
    if (used_by.rows.empty()) continue;
    const Block y = feed_forward(w.expert_gate(expert), w.expert_up(expert), w.expert_down(expert),
                                 reference::gather(m, used_by.rows));
    for (size_t k = 0; k < y.rows(); ++k) {
      double* sum = &sums[used_by.rows[k] * config_.d];
      for (size_t i = 0; i < config_.d; ++i) sum[i] += used_by.weights[k] * y.row(k)[i];
    }
  }
  Block e(h.rows(), config_.d);
  for (size_t r = 0; r < e.rows(); ++r) {
    for (size_t i = 0; i < config_.d; ++i) e.row(r)[i] = static_cast<float>(sums[r * config_.d + i]);
  }
  return e;
}

Block ReferenceExecutor::head(Pass& pass) {
  if (pass.rows.empty()) return Block(0, config_.V);
  const Block z = rms_norm(pass.x, weights_.output_norm, config_.eps);
  trace("final_norm", config_.L, pass, z);
  Block logits = linear(pool_, weights_.output, z);
  for (size_t r = 0; r < logits.rows(); ++r) {
    const auto row = logits.row(r);
    // Before the soft-cap, which would turn infinity into an ordinary number.
    finite_.push_back(std::all_of(row.begin(), row.end(), [](float logit) { return std::isfinite(logit); }));
    if (config_.softcap <= 0.0f) continue;
    const double cap = config_.softcap;
    for (float& logit : row) logit = static_cast<float>(cap * std::tanh(logit / cap));
  }
  return logits;
}

std::span<const float> ReferenceExecutor::logits(uint32_t output) {
  CARAT_CHECK(output < outputs());
  return logits_.row(output);
}

void ReferenceExecutor::logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) {
  const auto all = logits(output);
  out.clear();
  for (const int32_t token : tokens) {
    CARAT_CHECK(token >= 0 && static_cast<size_t>(token) < all.size());
    out.push_back(all[static_cast<size_t>(token)]);
  }
}

void ReferenceExecutor::keep_rows_that_want_logits(Pass& pass) const {
  std::vector<size_t> kept;
  for (size_t r = 0; r < pass.rows.size(); ++r) {
    if (pass.rows[r].wants_logits) kept.push_back(r);
  }
  if (kept.size() == pass.rows.size()) return;
  pass.x = reference::gather(pass.x, kept);
  if (config_.P > 0) pass.ple = reference::gather(pass.ple, kept);
  for (size_t k = 0; k < kept.size(); ++k) {
    pass.rows[k] = pass.rows[kept[k]];
    pass.index[k] = pass.index[kept[k]];
  }
  pass.rows.resize(kept.size());
  pass.index.resize(kept.size());
}

void ReferenceExecutor::check_not_cancelled() const {
  if (options_.cancelled && options_.cancelled->load()) fail(ErrorCode::kInterrupted, "the pass was interrupted");
}

void ReferenceExecutor::trace(std::string_view stage, uint32_t layer, const Pass& pass, const Block& values) const {
  if (!trace_) return;
  for (size_t r = 0; r < values.rows(); ++r) trace_(stage, layer, pass.index[r], values.row(r));
}

}  // namespace

std::unique_ptr<Executor> make_reference_executor(std::shared_ptr<const model::Model> model,
                                                  const ExecutorOptions& options, Trace trace) {
  return std::make_unique<ReferenceExecutor>(std::move(model), options, std::move(trace));
}

}  // namespace carat::exec
