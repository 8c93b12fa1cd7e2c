#pragma once

#include "exec/cuda/plan/plan.h"
#include "exec/cuda/weights/product_path.h"
#include "model/model.h"

namespace carat::cuda {

// The way each group's products are made, for the kernels and the placement the plan has chosen already.
ProductPaths choose_product_paths(const model::Model& model, const Plan& plan);

}  // namespace carat::cuda
