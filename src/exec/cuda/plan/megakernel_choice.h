#pragma once

#include <string>

#include "exec/cuda/plan/plan.h"

namespace carat::cuda {

// Why a decode step of one row is not run by the token kernel (kernels/token.h), in words; empty when it is.
std::string megakernel_obstacle(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request);

}  // namespace carat::cuda
