#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "exec/cuda/device/stream.h"
#include "exec/cuda/profile/profile_steps.h"

namespace carat::cuda {

// Times the steps of a pass on the device with one event after each: a step is what ran between two marks. Lives only
// while something is profiled; an executor without one does nothing but compare a pointer with null.
//
// Use: start(), the pass with its marks, wait for the stream, collect(). Under graph capture (captured = true) the
// events become nodes of the graph, and collect() is called after each replay: then no time of the host is in between.
class Profiler {
 public:
  explicit Profiler(bool captured) : captured_(captured) {}

  void start(cudaStream_t stream);
  void mark(const StepMark& mark, cudaStream_t stream);

  const std::vector<StepMark>& marks() const { return marks_; }
  // Adds the last run's time of each mark to seconds(); the events must have happened.
  void collect();
  const std::vector<double>& seconds() const { return seconds_; }  // [marks], sums over collected runs
  uint32_t runs() const { return runs_; }

 private:
  void record(cudaStream_t stream);

  bool captured_;
  std::vector<Event> events_;  // marks + 1, kept for the next run
  std::vector<StepMark> marks_;
  std::vector<double> seconds_;
  size_t recorded_ = 0;
  uint32_t runs_ = 0;
};

}  // namespace carat::cuda
