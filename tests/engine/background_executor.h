#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "exec/executor.h"

namespace carat::test {

// Another executor's passes as if they ran on a device of their own: a started pass runs when it is waited for, and
// whatever must not be asked meanwhile is a failure of the test.
class BackgroundExecutor : public exec::Executor {
 public:
  explicit BackgroundExecutor(std::unique_ptr<exec::Executor> inner) : inner_(std::move(inner)) {}

  bool is_running() const { return !rows_.empty(); }
  uint32_t passes() const { return passes_; }  // that were started
  void fail_start(uint32_t pass, ErrorCode code) { failing_start_ = pass, code_ = code; }
  void fail_finish(uint32_t pass, ErrorCode code) { failing_finish_ = pass, code_ = code; }

  std::string_view name() const override { return "background"; }
  const model::Model& model() const override { return inner_->model(); }
  const exec::ExecutorOptions& options() const override { return inner_->options(); }
  bool runs_in_background() const override { return true; }
  void forward(std::span<const exec::Row> rows) override {
    start(rows);
    finish();
  }
  void start(std::span<const exec::Row> rows) override {
    expect_idle("start");
    if (passes_++ == failing_start_) fail(code_, "made up: start");
    rows_.assign(rows.begin(), rows.end());
  }
  void finish() override {
    if (rows_.empty()) return;
    const std::vector<exec::Row> rows = std::move(rows_);
    rows_.clear();
    if (passes_ - 1 == failing_finish_) fail(code_, "made up: finish");
    inner_->forward(rows);
  }
  uint32_t outputs() const override { return expect_idle("outputs"), inner_->outputs(); }
  bool is_finite(uint32_t output) const override { return expect_idle("is_finite"), inner_->is_finite(output); }
  std::span<const float> logits(uint32_t output) override { return expect_idle("logits"), inner_->logits(output); }
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override {
    expect_idle("best");
    inner_->best(output, k, out);
  }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override {
    expect_idle("logits_of");
    inner_->logits_of(output, tokens, out);
  }
  double log_sum_exp(uint32_t output) override { return expect_idle("log_sum_exp"), inner_->log_sum_exp(output); }
  uint32_t length(uint32_t sequence) const override { return expect_idle("length"), inner_->length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override {
    return expect_idle("truncate"), inner_->truncate(sequence, n);
  }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override {
    return expect_idle("resumable"), inner_->resumable(sequence, n);
  }

 private:
  void expect_idle(const char* what) const { EXPECT_TRUE(rows_.empty()) << what << "() while a pass is running"; }

  std::unique_ptr<exec::Executor> inner_;
  std::vector<exec::Row> rows_;
  uint32_t passes_ = 0;
  uint32_t failing_start_ = UINT32_MAX, failing_finish_ = UINT32_MAX;
  ErrorCode code_ = ErrorCode::kDevice;
};

}  // namespace carat::test
