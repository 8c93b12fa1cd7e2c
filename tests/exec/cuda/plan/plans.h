#pragma once

// What the tests of plans ask for, and how they read the answer.
#include <string>
#include <string_view>

#include "exec/cuda/plan/plan.h"
#include "exec/executor.h"

namespace carat::cuda::test {

// A model that is on the GPU as a whole.
inline PlanRequest request_of(uint32_t context, std::string_view kernels = "") {
  PlanRequest request;
  request.gpu_layers = exec::kAllLayers;
  request.context = context;
  request.kernels = exec::KernelChoices::parse(kernels);
  return request;
}

// What was chosen for a slot of the registry; "" where the plan does not have it.
inline std::string decision(const Plan& plan, std::string_view slot) {
  for (const KernelDecision& made : plan.kernels) {
    if (made.slot == slot) return made.name;
  }
  return "";
}

}  // namespace carat::cuda::test
