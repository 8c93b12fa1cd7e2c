#pragma once

#include <stdexcept>
#include <vector>

#include "exec/executor.h"

namespace carat::test {

// An executor that computes nothing and answers with given logits: what a sampler sees.
class LogitsExecutor : public exec::Executor {
 public:
  explicit LogitsExecutor(std::vector<float> logits) : logits_(std::move(logits)) {}

  std::string_view name() const override { return "logits"; }
  const model::Model& model() const override { throw std::logic_error("a LogitsExecutor has no model"); }
  const exec::ExecutorOptions& options() const override { return options_; }
  void forward(std::span<const exec::Row>) override {}
  uint32_t outputs() const override { return 1; }
  bool is_finite(uint32_t) const override { return true; }
  std::span<const float> logits(uint32_t) override {
    ++dense_calls;
    return logits_;
  }
  void best(uint32_t, uint32_t k, std::vector<exec::Candidate>& out) override {
    most_fetched = std::max(most_fetched, k);
    exec::select_best(logits_, k, out);
  }
  void logits_of(uint32_t, std::span<const int32_t> tokens, std::vector<float>& out) override {
    out.clear();
    for (const int32_t token : tokens) out.push_back(logits_[static_cast<size_t>(token)]);
  }
  double log_sum_exp(uint32_t) override { return exec::log_sum_exp(logits_); }
  uint32_t length(uint32_t) const override { return 0; }
  uint32_t truncate(uint32_t, uint32_t) override { return 0; }
  uint32_t resumable(uint32_t, uint32_t) const override { return 0; }

  uint32_t most_fetched = 0;
  uint32_t dense_calls = 0;

 private:
  std::vector<float> logits_;
  exec::ExecutorOptions options_;
};

}  // namespace carat::test
