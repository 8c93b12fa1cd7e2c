#include "exec/cuda/profile/profiler.h"

#include "base/error.h"
#include "exec/cuda/device/check.h"

namespace carat::cuda {

void Profiler::record(cudaStream_t stream) {
  if (recorded_ == events_.size()) events_.emplace_back(true);
  check(cudaEventRecordWithFlags(events_[recorded_].get(), stream,
                                 captured_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        "recording an event");
  ++recorded_;
}

void Profiler::start(cudaStream_t stream) {
  recorded_ = 0;
  marks_.clear();
  record(stream);
}

void Profiler::mark(const StepMark& mark, cudaStream_t stream) {
  marks_.push_back(mark);
  record(stream);
}

void Profiler::collect() {
  if (runs_ == 0) seconds_.assign(marks_.size(), 0.0);
  // Runs of the same shape launch the same steps; adding up different ones would give figures without meaning.
  CARAT_CHECK(seconds_.size() == marks_.size() && recorded_ == marks_.size() + 1);
  for (size_t i = 0; i < marks_.size(); ++i)
    seconds_[i] += 1e-3 * static_cast<double>(events_[i + 1].since(events_[i]));
  ++runs_;
}

}  // namespace carat::cuda
