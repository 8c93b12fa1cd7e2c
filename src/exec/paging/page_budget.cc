#include "exec/paging/page_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "exec/host_memory.h"

namespace carat::exec {

using model::PageCount;
using model::PageKind;

PageCount page_budget(const model::Config& config, const ExecutorOptions& options, const model::KvPages& geometry,
                      double bytes_per_value, uint32_t layers) {
  const auto entries = [&](PageKind kind) { return uint64_t{geometry.entries(kind)}; };
  uint64_t global = options.sequences * entries(PageKind::kGlobal);
  uint64_t sliding = options.sequences * entries(PageKind::kSliding);
  if (options.cache_positions > 0) {
    const uint64_t wanted = options.cache_positions / geometry.positions() + 1;
    global = std::clamp(wanted, entries(PageKind::kGlobal), global);
  }
  const auto bytes = [&](PageKind kind, uint64_t count) {
    const auto values = static_cast<double>(geometry.values_per_page(kind, std::min(layers, config.L)));
    return values * static_cast<double>(count) * bytes_per_value;
  };
  const double needed = bytes(PageKind::kGlobal, global) + bytes(PageKind::kSliding, sliding);
  check_host_memory(static_cast<uint64_t>(std::min(needed, 0x1p63)),
                    fmt::format("the cache of {} sequences of {} positions", options.sequences, geometry.context()),
                    "a smaller context (-c) or fewer sequences help");
  if (const double window = bytes(PageKind::kSliding, geometry.window_pages()); window > 0.0) {
    double windows = bytes(PageKind::kGlobal, global) / 4.0 / window;
    windows = std::clamp(windows, 2.0 * options.sequences, 16.0 * options.sequences);
    if (const auto available = available_host_memory()) {
      windows = std::clamp((static_cast<double>(*available) / 2.0 - needed) / window, 0.0, windows);
    }
    sliding += static_cast<uint64_t>(windows) * geometry.window_pages();
  }
  CARAT_CHECK(std::max(global, sliding) <= std::numeric_limits<uint32_t>::max());
  return {static_cast<uint32_t>(global), static_cast<uint32_t>(sliding)};
}

}  // namespace carat::exec
