#pragma once

#include <functional>
#include <vector>

#include "exec/executor.h"
#include "exec/sequence_table.h"

namespace carat::test {

// An executor whose model has written the script already: after position p it is sure that script[p + 1] follows,
// whatever was said before. A pass of r rows takes cost(r) seconds of a clock that nothing else moves. It follows the
// rules of all executors for rows and for taking them back.
class ScriptedExecutor : public exec::Executor {
 public:
  ScriptedExecutor(std::shared_ptr<const model::Model> model, const exec::ExecutorOptions& options,
                   std::vector<int32_t> script, std::function<double(uint32_t)> cost, double* seconds)
      : model_(std::move(model)),
        options_(options),
        table_(model_->config(), options),
        script_(std::move(script)),
        cost_(std::move(cost)),
        seconds_(seconds) {}

  std::string_view name() const override { return "scripted"; }
  const model::Model& model() const override { return *model_; }
  const exec::ExecutorOptions& options() const override { return options_; }
  void forward(std::span<const exec::Row> rows) override {
    table_.check(rows);
    table_.begin(rows);
    table_.commit(rows);
    next_.clear();
    for (const exec::Row& row : rows) {
      if (row.wants_logits) next_.push_back(script_.at(row.position + 1));
    }
    *seconds_ += cost_(static_cast<uint32_t>(rows.size()));
  }
  uint32_t outputs() const override { return static_cast<uint32_t>(next_.size()); }
  bool is_finite(uint32_t) const override { return true; }
  std::span<const float> logits(uint32_t output) override {
    logits_.assign(model_->config().V, 0.0f);
    logits_[static_cast<size_t>(next_.at(output))] = 20.0f;
    return logits_;
  }
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override {
    exec::select_best(logits(output), k, out);
  }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override {
    const std::span<const float> all = logits(output);
    out.clear();
    for (const int32_t token : tokens) out.push_back(all[static_cast<size_t>(token)]);
  }
  double log_sum_exp(uint32_t output) override { return exec::log_sum_exp(logits(output)); }
  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }

 private:
  std::shared_ptr<const model::Model> model_;
  exec::ExecutorOptions options_;
  exec::SequenceTable table_;
  std::vector<int32_t> script_;
  std::function<double(uint32_t)> cost_;
  double* seconds_;
  std::vector<int32_t> next_;
  std::vector<float> logits_;
};

}  // namespace carat::test
