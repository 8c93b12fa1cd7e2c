#include "exec/cpu/cpu_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "exec/cpu/attention.h"
#include "exec/cpu/embedding.h"
#include "exec/cpu/experts.h"
#include "exec/cpu/kv_cache.h"
#include "exec/cpu/layer_kernels.h"
#include "exec/cpu/rotary.h"
#include "exec/cpu/simd/instruction_set.h"
#include "exec/cpu/threads/workers.h"
#include "exec/kv_rounding.h"
#include "exec/paging/page_budget.h"
#include "exec/paging/paged_sequences.h"

namespace carat::exec {
namespace {

using model::Layer;
using model::LayerWeights;
using namespace cpu;

Precision choose_precision(const KernelChoices& choices) {
  // The head's rounding goes straight into the logits, and with one row it waits for memory either way.
  return {.layers = choices.find("activations") != "int8", .head = true};
}

const ExecutorOptions& checked(const ExecutorOptions& options) {
  options.kernels.check_for("cpu");
  return options;
}

// The widest rows of the family's members, over all layers.
struct Widths {
  uint32_t q = 0, kv = 0, F = 0;

  explicit Widths(const model::Config& config) {
    for (const Layer& layer : config.layers) {
      q = std::max(q, layer.H * layer.hd);
      kv = std::max(kv, layer.Hkv * layer.hd);
      F = std::max(F, layer.F);
    }
  }
  uint32_t widest_input(const model::Config& config) const { return std::max({config.d, q, F, config.P}); }
};

// What a pass computes in; sized for options.chunk rows once and for all.
struct Workspace {
  AlignedBuffer<float> x;         // [rows, d] residual stream
  AlignedBuffer<float> normed;    // [rows, d]
  AlignedBuffer<float> q;         // [rows, H * hd]
  AlignedBuffer<float> k, v;      // [rows, Hkv * hd]
  AlignedBuffer<float> attended;  // [rows, H * hd]
  AlignedBuffer<float> gate, up;  // [rows, F]
  AlignedBuffer<float> mixed;     // [rows, d] what a branch adds to the residual stream, before its norm
  AlignedBuffer<float> experts;   // [rows, d] the experts' part of that, MoE only
  AlignedBuffer<float> ple;       // [rows, P * L]
  AlignedBuffer<float> ple_gate;  // [rows, P]
  AlignedBuffer<float> logits;    // [outputs, V]

  Workspace(const model::Config& config, const Widths& widths, const ExecutorOptions& options, uint32_t outputs)
      : x(size_t{options.chunk} * config.d),
        normed(size_t{options.chunk} * config.d),
        q(size_t{options.chunk} * widths.q),
        k(size_t{options.chunk} * widths.kv),
        v(size_t{options.chunk} * widths.kv),
        attended(size_t{options.chunk} * widths.q),
        gate(size_t{options.chunk} * widths.F),
        up(size_t{options.chunk} * widths.F),
        mixed(size_t{options.chunk} * config.d),
        experts(config.experts == 0 ? 0 : size_t{options.chunk} * config.d),
        ple(size_t{options.chunk} * config.P * config.L),
        ple_gate(size_t{options.chunk} * config.P),
        logits(size_t{outputs} * config.V) {}
};

uint32_t head_dimension(const model::Config& config, bool sliding) {
  for (const Layer& layer : config.layers) {
    if (layer.sliding == sliding) return layer.hd;
  }
  return 2;
}

// Where only the first layers are run, their owner keeps the lengths, and every sequence has its pages for good.
model::PageCount page_count(const model::Config& config, const ExecutorOptions& options, const model::KvPages& pages,
                            uint32_t layers) {
  if (layers < config.L) return PagedSequences::pages_of_all(pages, options.sequences);
  return page_budget(config, options, pages, KvCache::bytes_per_value(config, options.kv_format), layers);
}

class CpuExecutor final : public Executor, public CpuLayers {
 public:
  // layers < L: only the first of them, for run().
  CpuExecutor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options, uint32_t layers);

  std::string_view name() const override { return "cpu"; }
  const model::Model& model() const override { return *model_; }
  const ExecutorOptions& options() const override { return options_; }
  bool rows_are_independent() const override { return true; }

  void forward(std::span<const Row> rows) override;
  std::span<const float> run(std::span<const Row> rows) override;

  uint32_t outputs() const override { return outputs_; }
  bool is_finite(uint32_t output) const override;
  std::span<const float> logits(uint32_t output) override;
  void best(uint32_t output, uint32_t k, std::vector<Candidate>& out) override { select_best(logits(output), k, out); }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override;
  double log_sum_exp(uint32_t output) override { return exec::log_sum_exp(logits(output)); }

  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }
  KeptPrefixes* prefixes() override { return &table_; }

  void observe(ProductObserver observer) { multiplier_.observe(std::move(observer)); }

 private:
  void begin(std::span<const Row> rows);
  void run_layers();
  void run_layer(const Layer& layer);
  // Section 3.3 of docs/gemma4.md in three parts; each leaves its sum in the residual stream.
  void add_attention(const Layer& layer);
  void add_feed_forward(const Layer& layer);
  void add_per_layer_input(const Layer& layer);

  void project_keys_and_values(const Layer& layer);
  void project_queries(const Layer& layer);
  void store_key_and_value(const Layer& layer, uint32_t row);
  void store_vector(const float* values, size_t hd, std::byte* to) const;
  void normalise_inputs(const std::vector<float>& norm, bool quantise);
  void multiply_output(const WeightMatrix& weights, const float* values, uint32_t cols);
  void head();

  void keep_rows_that_want_logits();
  void check_not_cancelled() const;
  uint32_t row_count() const { return static_cast<uint32_t>(rows_.size()); }
  float* x(uint32_t row) { return work_.x.data() + size_t{row} * config_.d; }
  float* mixed(uint32_t row) { return work_.mixed.data() + size_t{row} * config_.d; }
  const RotaryAngles& angles(const Layer& layer) const { return layer.sliding ? sliding_angles_ : global_angles_; }

  std::shared_ptr<const model::Model> model_;
  const model::Config& config_;
  const model::Weights& weights_;
  ExecutorOptions options_;
  const KernelTable& kernels_;
  Precision precision_;
  uint32_t layer_count_;  // that are run
  // Rows without logits end inside this layer, after their keys and values are stored: no later layer has any of its
  // own. The number of layers when the shortcut is off or only the first layers are run.
  uint32_t cut_;
  ThreadPool pool_;
  Multiplier multiplier_;
  Workers workers_;
  model::KvPages pages_;
  PagedSequences table_;
  KvCache cache_;
  Attention attention_;
  Embedding embedding_;
  std::optional<Experts> experts_;
  std::vector<LayerKernels> layers_;
  WeightMatrix head_;
  RotaryAngles sliding_angles_, global_angles_;
  ActivationBuffer inputs_;
  Workspace work_;
  std::vector<Row> rows_;  // of the pass that are still computed
  uint32_t outputs_ = 0;
  std::vector<std::atomic<bool>> finite_;  // [outputs]; cleared by whichever worker finds a logit that is not
};

CpuExecutor::CpuExecutor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options, uint32_t layers)
    : model_(std::move(model)),
      config_(model_->config()),
      weights_(model_->weights()),
      options_(checked(options)),
      kernels_(choose_kernels(options.kernels)),
      precision_(choose_precision(options.kernels)),
      layer_count_(layers),
      cut_(options.kv_share_shortcut && layers == config_.L ? config_.n_kv - 1 : layers),
      pool_(options.threads),
      multiplier_(kernels_, pool_, options.chunk),
      workers_{&kernels_, &pool_, &multiplier_},
      pages_(config_, SequenceRules::checked(config_, options).context, options.chunk),
      table_(config_, options, pages_, page_count(config_, options, pages_, layers),
             KvCache::bytes_per_value(config_, options.kv_format)),
      cache_(config_, pages_, table_, options, layers),
      attention_(config_, kernels_, pool_, cache_, options),
      embedding_(*model_, workers_, cut_, precision_.layers),
      head_(kernels_, weights_.output, precision_.head),
      sliding_angles_(head_dimension(config_, true), config_.rope_base_sliding, {}, options.chunk),
      global_angles_(head_dimension(config_, false), config_.rope_base_global, weights_.rope_freqs, options.chunk),
      inputs_(kernels_, options.chunk, Widths(config_).widest_input(config_)),
      work_(config_, Widths(config_), options, layers == config_.L ? std::min(options.outputs, options.chunk) : 0),
      finite_(std::min(options.outputs, options.chunk)) {
  if (config_.experts > 0) experts_.emplace(config_, options_, workers_, precision_.layers);
  layers_.reserve(layers);
  for (uint32_t i = 0; i < layers; ++i) {
    layers_.emplace_back(kernels_, config_, config_.layers[i], weights_.layers[i], precision_.layers);
  }
  if (layers < config_.L) table_.assign_all();
  rows_.reserve(options_.chunk);
  if (options_.log) {
    options_.log->info("CPU executor: {} layers, {} kernels, {} threads, activations as {}, {} MiB for keys and values",
                       layers, kernels_.name, pool_.size(), precision_.layers ? "int16" : "int8", cache_.bytes() >> 20);
  }
}

void CpuExecutor::forward(std::span<const Row> rows) {
  table_.check(rows);
  cache_.copy(table_.begin(rows));
  outputs_ = 0;
  begin(rows);
  run_layers();
  if (!rows_.empty()) {
    keep_rows_that_want_logits();
    head();
  }
  table_.commit(rows);
  outputs_ = row_count();
}

std::span<const float> CpuExecutor::run(std::span<const Row> rows) {
  CARAT_CHECK(!rows.empty() && rows.size() <= options_.chunk);
  begin(rows);
  run_layers();
  return {work_.x.data(), rows.size() * config_.d};
}

// Angles, embeddings and per-layer inputs of the rows.
void CpuExecutor::begin(std::span<const Row> rows) {
  rows_.assign(rows.begin(), rows.end());
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
    sliding_angles_.set_row(row, rows_[row].position);
    global_angles_.set_row(row, rows_[row].position);
  });
  embedding_.tokens(rows_, work_.x.data());
  embedding_.layers_before_cut(rows_, work_.x.data(), inputs_, work_.ple.data());
}

void CpuExecutor::run_layers() {
  for (uint32_t i = 0; i < layer_count_; ++i) {
    check_not_cancelled();
    run_layer(config_.layers[i]);
    if (rows_.empty()) return;
  }
}

void CpuExecutor::run_layer(const Layer& layer) {
  add_attention(layer);
  if (rows_.empty()) return;
  add_feed_forward(layer);
  if (config_.P > 0) add_per_layer_input(layer);
  const float scale = weights_.layers[layer.index].output_scale;
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) { kernels_.scale(x(row), scale, config_.d); });
}

void CpuExecutor::add_attention(const Layer& layer) {
  const LayerWeights& w = weights_.layers[layer.index];
  const LayerKernels& m = layers_[layer.index];
  normalise_inputs(w.attn_norm, m.attn_q.quantised() || m.attn_k.quantised() || m.attn_v.quantised());
  if (layer.owns_kv) project_keys_and_values(layer);
  if (layer.index == cut_) {
    keep_rows_that_want_logits();
    if (rows_.empty()) return;
    embedding_.tokens(rows_, work_.normed.data());
    embedding_.layers_from_cut(rows_, work_.normed.data(), inputs_, work_.ple.data());
    normalise_inputs(w.attn_norm, m.attn_q.quantised());
  }
  project_queries(layer);
  attention_.run(layer, rows_, work_.q.data(), work_.attended.data());
  multiply_output(m.attn_output, work_.attended.data(), layer.H * layer.hd);
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
    kernels_.add_rms_norm(mixed(row), w.post_attention_norm.data(), config_.eps, config_.d, x(row));
  });
}

void CpuExecutor::project_keys_and_values(const Layer& layer) {
  const LayerKernels& m = layers_[layer.index];
  const size_t width = size_t{layer.Hkv} * layer.hd;
  const std::array<Product, 2> products = {Product{&m.attn_k, &inputs_.view(), work_.k.data(), width},
                                           Product{&m.attn_v, &inputs_.view(), work_.v.data(), width}};
  multiplier_.run(std::span(products).first(layer.v_from_k ? 1 : 2));
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) { store_key_and_value(layer, row); });
}

// Into the cache, in its format.
void CpuExecutor::store_vector(const float* values, size_t hd, std::byte* to) const {
  switch (cache_.format()) {
    case quant::Format::kF16:
      kernels_.to_halves(values, hd, reinterpret_cast<uint16_t*>(to));
      break;
    case quant::Format::kQ8_0:
      for (size_t i = 0; i < hd; i += quant::kBlock, to += sizeof(quant::BlockQ8_0)) {
        const quant::BlockQ8_0 block = round_q8_0(values + i);
        std::memcpy(to, &block, sizeof block);
      }
      break;
    default:  // F32: the cache takes no other
      std::memcpy(to, values, hd * sizeof(float));
  }
}

void CpuExecutor::store_key_and_value(const Layer& layer, uint32_t row) {
  const LayerWeights& w = weights_.layers[layer.index];
  const Row& at = rows_[row];
  const size_t hd = layer.hd;
  for (uint32_t head = 0; head < layer.Hkv; ++head) {
    const size_t offset = (size_t{row} * layer.Hkv + head) * hd;
    float* k = work_.k.data() + offset;
    float* v = work_.v.data() + offset;
    // V first: where it is made from the K projection it is the raw one, before norm and rotation.
    kernels_.rms_norm(layer.v_from_k ? k : v, nullptr, config_.eps, hd, v);
    kernels_.rms_norm(k, w.attn_k_norm.data(), config_.eps, hd, k);
    kernels_.rotate(k, angles(layer).cosines(row), angles(layer).sines(row), hd / 2);
    std::byte* key = cache_.key(layer.index, at.sequence, head, at.position);
    std::byte* value = cache_.value(layer.index, at.sequence, head, at.position);
    store_vector(k, hd, key);
    store_vector(v, hd, value);
  }
}

void CpuExecutor::project_queries(const Layer& layer) {
  const LayerKernels& m = layers_[layer.index];
  const size_t width = size_t{layer.H} * layer.hd;
  multiplier_.run({&m.attn_q, &inputs_.view(), work_.q.data(), width});
  const std::vector<float>& norm = weights_.layers[layer.index].attn_q_norm;
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
    for (uint32_t head = 0; head < layer.H; ++head) {
      float* q = work_.q.data() + row * width + size_t{head} * layer.hd;
      kernels_.rms_norm(q, norm.data(), config_.eps, layer.hd, q);
      kernels_.rotate(q, angles(layer).cosines(row), angles(layer).sines(row), layer.hd / 2);
    }
  });
}

void CpuExecutor::add_feed_forward(const Layer& layer) {
  const LayerWeights& w = weights_.layers[layer.index];
  const LayerKernels& m = layers_[layer.index];
  normalise_inputs(w.ffn_norm, m.ffn_gate.quantised() || m.ffn_up.quantised());
  const std::array<Product, 2> products = {Product{&m.ffn_gate, &inputs_.view(), work_.gate.data(), layer.F},
                                           Product{&m.ffn_up, &inputs_.view(), work_.up.data(), layer.F}};
  multiplier_.run(products);
  inputs_.set_source(work_.gate.data(), layer.F, row_count(), layer.F, precision_.layers);
  workers_.prepare_rows(inputs_, m.ffn_down.quantised(), [&](uint32_t row, unsigned) {
    float* gate = work_.gate.data() + size_t{row} * layer.F;
    kernels_.gelu_multiply(gate, work_.up.data() + size_t{row} * layer.F, layer.F, gate);
  });
  multiplier_.run({&m.ffn_down, &inputs_.view(), work_.mixed.data(), config_.d});
  if (layer.moe) {
    experts_->run(w, m, work_.x.data(), row_count(), work_.normed.data(), inputs_, work_.experts.data());
    workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
      kernels_.rms_norm(mixed(row), w.post_ffw_norm_1.data(), config_.eps, config_.d, mixed(row));
      kernels_.add_rms_norm(work_.experts.data() + size_t{row} * config_.d, w.post_ffw_norm_2.data(), config_.eps,
                            config_.d, mixed(row));
    });
  }
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
    kernels_.add_rms_norm(mixed(row), w.post_ffw_norm.data(), config_.eps, config_.d, x(row));
  });
}

void CpuExecutor::add_per_layer_input(const Layer& layer) {
  const LayerWeights& w = weights_.layers[layer.index];
  const LayerKernels& m = layers_[layer.index];
  const size_t P = config_.P;
  inputs_.set_source(work_.x.data(), config_.d, row_count(), config_.d, precision_.layers);
  workers_.prepare_rows(inputs_, m.inp_gate.quantised(), [](uint32_t, unsigned) {});
  multiplier_.run({&m.inp_gate, &inputs_.view(), work_.ple_gate.data(), P});
  inputs_.set_source(work_.ple_gate.data(), P, row_count(), config_.P, precision_.layers);
  workers_.prepare_rows(inputs_, m.proj.quantised(), [&](uint32_t row, unsigned) {
    float* gate = work_.ple_gate.data() + row * P;
    kernels_.gelu_multiply(gate, work_.ple.data() + (size_t{row} * config_.L + layer.index) * P, P, gate);
  });
  multiplier_.run({&m.proj, &inputs_.view(), work_.mixed.data(), config_.d});
  workers_.for_each_row(row_count(), [&](uint32_t row, unsigned) {
    kernels_.add_rms_norm(mixed(row), w.post_norm.data(), config_.eps, config_.d, x(row));
  });
}

void CpuExecutor::normalise_inputs(const std::vector<float>& norm, bool quantise) {
  inputs_.set_source(work_.normed.data(), config_.d, row_count(), config_.d, precision_.layers);
  workers_.prepare_rows(inputs_, quantise, [&](uint32_t row, unsigned) {
    kernels_.rms_norm(x(row), norm.data(), config_.eps, config_.d, work_.normed.data() + size_t{row} * config_.d);
  });
}

void CpuExecutor::multiply_output(const WeightMatrix& weights, const float* values, uint32_t cols) {
  inputs_.set_source(values, cols, row_count(), cols, precision_.layers);
  workers_.prepare_rows(inputs_, weights.quantised(), [](uint32_t, unsigned) {});
  multiplier_.run({&weights, &inputs_.view(), work_.mixed.data(), config_.d});
}

void CpuExecutor::head() {
  if (rows_.empty()) return;
  inputs_.set_source(work_.normed.data(), config_.d, row_count(), config_.d, precision_.head);
  workers_.prepare_rows(inputs_, head_.quantised(), [&](uint32_t row, unsigned) {
    kernels_.rms_norm(x(row), weights_.output_norm.data(), config_.eps, config_.d,
                      work_.normed.data() + size_t{row} * config_.d);
  });
  multiplier_.run({&head_, &inputs_.view(), work_.logits.data(), config_.V});

  for (uint32_t row = 0; row < row_count(); ++row) finite_[row].store(true, std::memory_order_relaxed);
  constexpr uint32_t kPiece = 8192;
  const uint32_t pieces = (config_.V + kPiece - 1) / kPiece;
  for_each(pool_, size_t{pieces} * row_count(), 1, [&](size_t item, unsigned) {
    const uint32_t row = static_cast<uint32_t>(item / pieces);
    const size_t first = item % pieces * kPiece;
    float* logits = work_.logits.data() + size_t{row} * config_.V + first;
    if (!kernels_.softcap(logits, config_.softcap, std::min<size_t>(kPiece, config_.V - first))) {
      finite_[row].store(false, std::memory_order_relaxed);
    }
  });
}

bool CpuExecutor::is_finite(uint32_t output) const {
  CARAT_CHECK(output < outputs_);
  return finite_[output].load(std::memory_order_relaxed);
}

std::span<const float> CpuExecutor::logits(uint32_t output) {
  CARAT_CHECK(output < outputs_);
  return {work_.logits.data() + size_t{output} * config_.V, config_.V};
}

void CpuExecutor::logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) {
  const std::span<const float> all = logits(output);
  out.clear();
  for (const int32_t token : tokens) {
    CARAT_CHECK(token >= 0 && static_cast<size_t>(token) < all.size());
    out.push_back(all[static_cast<size_t>(token)]);
  }
}

void CpuExecutor::keep_rows_that_want_logits() {
  uint32_t kept = 0;
  for (uint32_t row = 0; row < row_count(); ++row) {
    if (!rows_[row].wants_logits) continue;
    if (kept != row) {
      rows_[kept] = rows_[row];
      std::copy_n(x(row), config_.d, x(kept));
      sliding_angles_.move_row(row, kept);
      global_angles_.move_row(row, kept);
    }
    ++kept;
  }
  rows_.resize(kept);
}

void CpuExecutor::check_not_cancelled() const {
  if (options_.cancelled && options_.cancelled->load()) fail(ErrorCode::kInterrupted, "the pass was interrupted");
}

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                            ProductObserver observer) {
  const uint32_t layers = model->config().L;
  auto executor = std::make_unique<CpuExecutor>(std::move(model), options, layers);
  if (observer) executor->observe(std::move(observer));
  return executor;
}

std::unique_ptr<CpuLayers> make_cpu_layers(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                           uint32_t count) {
  CARAT_CHECK(count > 0 && count < model->config().L && count <= model->config().n_kv);
  return std::make_unique<CpuExecutor>(std::move(model), options, count);
}

}  // namespace carat::exec
