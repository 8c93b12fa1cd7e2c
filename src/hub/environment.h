#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace carat::hub {

// Looks an environment variable up; an empty one counts as unset. It is passed in, so that nothing here depends on the
// state of the process.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

inline Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

}  // namespace carat::hub
