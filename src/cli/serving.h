#pragma once

#include "cli/flags/serve_flags.h"
#include "runtime/executor_factory.h"

namespace carat::cli {

// Serves the model that the flags name until a signal ends it, and drains. Throws on flags that cannot be, where the
// model does not fit, and when the engine is lost.
void serve(const ServeFlags& flags, const runtime::ExecutorMaker& make_executor = runtime::make_executor);

}  // namespace carat::cli
