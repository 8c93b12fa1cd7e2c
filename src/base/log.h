#pragma once

#include <spdlog/logger.h>

#include <memory>

namespace carat {

// The library writes to the logger it is given and never to a stream of its own. A null logger is silence.
using Logger = std::shared_ptr<spdlog::logger>;

}  // namespace carat
