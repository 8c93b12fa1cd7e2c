#include "exec/executor.h"

#include "base/error.h"

namespace carat::exec {

Error non_finite_error(const Executor& executor) {
  return Error(ErrorCode::kNonFinite,
               fmt::format("the model produced NaN or infinite logits: the file {} is damaged or not a Gemma 4 model",
                           executor.model().file().path()));
}

void require_finite(const Executor& executor) {
  for (uint32_t output = 0; output < executor.outputs(); ++output) {
    if (!executor.is_finite(output)) throw non_finite_error(executor);
  }
}

}  // namespace carat::exec
