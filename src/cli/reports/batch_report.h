#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "batch/batch_run.h"
#include "cli/terminal.h"

namespace carat::cli {

// "1,200 of 10,000 lines · 3 failed · 31.2 lines/s · 4,100 t/s · 4 min 40 s left"; without the rate and what follows
// from it until there is one.
std::string describe_batch(const batch::BatchProgress& progress, std::optional<double> lines_per_second);

// Shows a batch on stderr: one line in place on a terminal, otherwise a line for each tenth of it.
class BatchReport {
 public:
  explicit BatchReport(uint64_t done_before) : done_before_(done_before) {}
  ~BatchReport() { line_.clear(); }

  void show(const batch::BatchProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<double> lines_per_second(const batch::BatchProgress& progress) const;

  const uint64_t done_before_;  // by earlier processes
  const Clock::time_point started_ = Clock::now();
  Clock::time_point shown_{};
  uint64_t tenth_ = 0;
  ProgressLine line_;
};

}  // namespace carat::cli
