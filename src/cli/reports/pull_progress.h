#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "cli/terminal.h"
#include "hub/remote/pull.h"

namespace carat::cli {

// Bytes per second over the last seconds, so that a change of speed shows soon and a single pause does not.
class TransferRate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void add(uint64_t bytes, Time now);
  // nullopt until there is enough to tell.
  std::optional<double> bytes_per_second() const;

 private:
  struct Sample {
    Time time;
    uint64_t bytes = 0;
  };
  std::deque<Sample> samples_;
};

// "model.gguf: 1.20 of 4.30 GB, 28 %, 45.1 MB/s, 1 min 9 s left"
std::string describe_progress(const hub::DownloadProgress& progress, std::optional<double> bytes_per_second);
// "9 s", "1 min 9 s", "2 h 5 min"
std::string describe_seconds(uint64_t seconds);

// The same in at most `columns`: without the file's name where there is no room for it, then cut.
std::string fit_progress(const hub::DownloadProgress& progress, std::optional<double> bytes_per_second, size_t columns);

// Shows a pull on stderr: one line in place on a terminal, otherwise a line for each quarter of a file.
class PullProgress {
 public:
  explicit PullProgress(const hub::PullPlan& plan);

  void show(const hub::DownloadProgress& progress);
  void clear() { line_.clear(); }
  // Says what was done.
  void finish();

 private:
  void show_plain(const hub::DownloadProgress& progress);

  const hub::PullPlan& plan_;
  ProgressLine line_;
  TransferRate rate_;
  std::string path_;  // of the file being shown
  int quarter_ = -1;  // of that file, last written
  TransferRate::Time started_;
  TransferRate::Time shown_;
};

}  // namespace carat::cli
