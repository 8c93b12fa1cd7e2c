#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

#include "exec/cuda/device/facts.h"

namespace carat::cli {

// The GPU a plan is made for: the one of this machine, or one that is described.
struct GpuFlag {
  std::string described;  // empty: the one of this machine

  void add_to(CLI::App& command);
  // Throws kUnsupported when there is no GPU here and none was described, kBadArgument on a description that makes no
  // sense.
  cuda::GpuFacts resolve() const;
};

// "NAME,CAPABILITY,SMS,GB[,FREE GB]", such as "RTX 4070 Ti,8.9,60,12". GB as cards are sold (GiB). Without a fifth part
// half a GB counts as taken.
cuda::GpuFacts parse_gpu(std::string_view text);

}  // namespace carat::cli
