#pragma once

#include <cstdint>
#include <string>

#include "serve/options.h"

namespace carat::serve_bench {

struct ServerInfo {
  std::string model;
  uint32_t vocabulary = 0;  // 0: it does not say
};

// Of /v1/models. Throws carat::Error where it cannot be had.
ServerInfo ask_server(const TargetOptions& target);

}  // namespace carat::serve_bench
