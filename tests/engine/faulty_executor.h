#pragma once

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "engine/forwarding_executor.h"

namespace carat::test {

// Fails in one chosen pass, counted from 0.
class FaultyExecutor : public ForwardingExecutor {
 public:
  enum class Fault { kError, kBug };  // an Error of the given code, or an exception nobody should throw

  FaultyExecutor(std::unique_ptr<exec::Executor> inner, int failing_pass, ErrorCode code, Fault fault = Fault::kError)
      : ForwardingExecutor(std::move(inner)), passes_left_(failing_pass), code_(code), fault_(fault) {}

  void forward(std::span<const exec::Row> rows) override {
    if (passes_left_-- == 0) {
      if (fault_ == Fault::kBug) throw std::logic_error("made up: a bug");
      fail(code_, "made up: the pass failed");
    }
    inner().forward(rows);
  }

 private:
  int passes_left_;
  ErrorCode code_;
  Fault fault_;
};

}  // namespace carat::test
