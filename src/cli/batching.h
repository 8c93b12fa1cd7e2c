#pragma once

#include "cli/flags/batch_flags.h"

namespace carat::cli {

// Answers the lines of a file into another. Throws CLI::RuntimeError with kLinesFailed where all are done and some
// failed; kInterrupted where a signal stopped it, and what else ends a run.
void run_batch(const BatchFlags& flags);

}  // namespace carat::cli
