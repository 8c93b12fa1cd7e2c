#pragma once

#include <string>
#include <string_view>

#include "serve/options.h"

namespace carat::serve_bench {

// Named shapes of load. Throws carat::Error with the known names.
void apply_scenario(std::string_view name, BenchOptions& options);
// A line for each.
std::string scenario_help();

}  // namespace carat::serve_bench
