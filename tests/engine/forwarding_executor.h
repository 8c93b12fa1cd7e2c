#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exec/executor.h"

namespace carat::test {

// Another executor, to change something about it.
class ForwardingExecutor : public exec::Executor {
 public:
  explicit ForwardingExecutor(std::unique_ptr<exec::Executor> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  const model::Model& model() const override { return inner_->model(); }
  const exec::ExecutorOptions& options() const override { return inner_->options(); }
  bool rows_are_independent() const override { return inner_->rows_are_independent(); }
  void forward(std::span<const exec::Row> rows) override { inner_->forward(rows); }
  uint32_t outputs() const override { return inner_->outputs(); }
  bool is_finite(uint32_t output) const override { return inner_->is_finite(output); }
  std::span<const float> logits(uint32_t output) override { return inner_->logits(output); }
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override { inner_->best(output, k, out); }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override {
    inner_->logits_of(output, tokens, out);
  }
  double log_sum_exp(uint32_t output) override { return inner_->log_sum_exp(output); }
  uint32_t length(uint32_t sequence) const override { return inner_->length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return inner_->truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return inner_->resumable(sequence, n); }

 protected:
  exec::Executor& inner() { return *inner_; }

 private:
  std::unique_ptr<exec::Executor> inner_;
};

}  // namespace carat::test
