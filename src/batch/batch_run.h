#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "batch/batch_input.h"
#include "batch/batch_output.h"
#include "server/routes/route_table.h"
#include "server/service/service.h"

namespace carat::batch {

struct BatchProgress {
  uint64_t total = 0;   // lines of the shard
  uint64_t done = 0;    // of them, failed ones included
  uint64_t failed = 0;  // of what is done
  double tokens_per_second = 0.0;
};

struct BatchRunOptions {
  // Lines handed to the service and not answered: those that run, and enough beside them that none has to wait for the
  // next one to be read and prepared.
  size_t at_a_time = 32;
  const std::atomic<bool>* interrupted = nullptr;  // set: what runs is given up, what is done stays
};

// How many requests must wait in a service for it never to refuse a line: as many as are handed over, with prompts as
// long as they like.
server::ServiceOptions options_for_batch(server::ServiceOptions options, size_t at_a_time);

// Asks the service what is not done of the input, and finishes the output. The first lines are asked first. Throws
// kInterrupted, kDevice where the engine is lost, and kIo; what was done until then is in the output. Calls `progress`
// several times a second.
void run_batch(server::Service& service, const BatchInput& input, BatchOutput& output, const BatchRunOptions& options,
               const std::function<void(const BatchProgress&)>& progress);

}  // namespace carat::batch
