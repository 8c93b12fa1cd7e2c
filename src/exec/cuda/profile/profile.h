#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/executor.h"

namespace carat::exec {

// What one kernel family did in a phase. Bytes and FLOPs are the least its shapes call for, not what was counted.
struct ProfileFamily {
  std::string name;
  uint32_t steps = 0;  // places in the pass that were timed
  double seconds = 0.0;
  double bytes = 0.0;
  double flops = 0.0;

  double bytes_per_second() const { return seconds > 0.0 ? bytes / seconds : 0.0; }
  double flops_per_second() const { return seconds > 0.0 ? flops / seconds : 0.0; }
};

// What the GPU can do, measured just before.
struct ProfileCeilings {
  double bytes_per_second = 0.0;  // reading memory
  double flops_per_second = 0.0;  // a large bf16 matrix product

  // Seconds in which the family's bytes and FLOPs could be done, whichever takes longer.
  double least_seconds(const ProfileFamily& family) const;
  bool memory_bound(const ProfileFamily& family) const;
  // That of 1; 0 for a family that took no time.
  double share(const ProfileFamily& family) const;
};

struct ProfilePhase {
  std::string name;     // "prefill" or "decode"
  uint32_t tokens = 0;  // all figures are for this many
  uint32_t depth = 0;   // positions before the first of them
  // What it takes when nothing is profiled, from the caller's view, and what the GPU alone needs when the whole of it
  // is one graph (0 where it is not).
  double seconds = 0.0;
  double graph_seconds = 0.0;
  std::vector<ProfileFamily> families;  // those that ran

  double kernel_seconds() const;
  // Time in which no family was at work, or (negative) that families saved by overlapping.
  double gap_seconds() const { return seconds - kernel_seconds(); }
  double tokens_per_second() const { return seconds > 0.0 ? tokens / seconds : 0.0; }
  // All families as one, for totals.
  ProfileFamily total() const;
};

struct ProfileReport {
  struct Decision {
    std::string slot, name, reason;
  };
  std::string gpu;
  uint32_t capability = 0;
  std::string model;  // path
  uint32_t context = 0;
  uint32_t chunk = 0;
  ProfileCeilings ceilings;
  std::vector<Decision> kernels;
  std::vector<ProfilePhase> phases;
};

struct ProfileRequest {
  uint32_t prompt = 2048;    // 0: no prefill phase
  uint32_t generate = 64;    // 0: no decode phase
  uint32_t repetitions = 3;  // of each measurement
};

// Loads the model, runs random tokens and times every kernel family. `options` as for make_cuda_executor, but the
// context is made large enough and all layers are on the GPU. Throws as make_cuda_executor does, and kBadArgument when
// there is nothing to run or only a part of the layers is wanted on the GPU.
ProfileReport profile_cuda(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                           const ProfileRequest& request,
                           const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace carat::exec
