#pragma once

#include <filesystem>

#include "hub/environment.h"

namespace carat::hub {

// The folder where carat keeps what it can find out again, such as what was measured on this machine: carat/ of
// XDG_CACHE_HOME or of ~/.cache. Empty where the environment names neither; a relative XDG_CACHE_HOME does not count,
// as its specification has it. Nothing is created.
std::filesystem::path carat_cache_folder(const Environment& environment);

}  // namespace carat::hub
