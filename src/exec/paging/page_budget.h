#pragma once

#include "exec/executor.h"
#include "model/config.h"
#include "model/kv_pages.h"

namespace carat::exec {

// How many pages the caches of an executor on this machine's memory have. Global pages: as options.cache_positions
// says. Sliding pages: what all sequences need at once, and windows of prefixes that are kept. Windows take a quarter
// of what global pages take, but at least two and at most sixteen for each sequence, as far as half of the memory that
// is there allows. bytes_per_value: of what is cached in the first `layers` layers.
model::PageCount page_budget(const model::Config& config, const ExecutorOptions& options,
                             const model::KvPages& geometry, double bytes_per_value, uint32_t layers);

}  // namespace carat::exec
