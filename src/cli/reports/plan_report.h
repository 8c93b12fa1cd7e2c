#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exec/cuda/plan/plan.h"

namespace carat::cli {

// Everything `carat plan` says, before it is written as text or JSON.
struct PlanReport {
  std::string model;  // path
  uint32_t layers = 0;
  uint32_t context_length = 0;  // the model was trained for
  cuda::GpuFacts gpu;
  bool described = false;  // the GPU is a description, not the one of this machine
  cuda::Plan plan;
  double host_bytes_per_second = cuda::kAssumedHostBandwidth;  // at which layers on the CPU read their weights
  bool host_measured = false;

  uint32_t layers_on_cpu() const { return plan.placement.first_layer; }
};

std::string plan_text(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

// "9.0"
std::string capability_text(uint32_t capability);
// "  slot=name  reason" lines.
std::string decisions_text(const cuda::Plan& plan);

}  // namespace carat::cli
