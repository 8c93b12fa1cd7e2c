#include "hub/carat_cache.h"

namespace carat::hub {

std::filesystem::path carat_cache_folder(const Environment& environment) {
  if (const auto cache = environment("XDG_CACHE_HOME"); cache && std::filesystem::path(*cache).is_absolute()) {
    return std::filesystem::path(*cache) / "carat";
  }
  if (const auto home = environment("HOME")) return std::filesystem::path(*home) / ".cache" / "carat";
  return {};
}

}  // namespace carat::hub
