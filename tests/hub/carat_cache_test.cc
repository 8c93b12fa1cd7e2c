#include "hub/carat_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace carat::hub {
namespace {

std::string folder(std::map<std::string, std::string> variables) {
  return carat_cache_folder([variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
           const auto found = variables.find(name);
           if (found == variables.end()) return std::nullopt;
           return found->second;
         })
      .string();
}

TEST(CaratCache, FollowsTheEnvironment) {
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "/fast/cache"}, {"HOME", "/home/ada"}}), "/fast/cache/carat");
  EXPECT_EQ(folder({{"HOME", "/home/ada"}}), "/home/ada/.cache/carat");
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "cache"}, {"HOME", "/home/ada"}}), "/home/ada/.cache/carat");
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "cache"}}), "");
  EXPECT_EQ(folder({}), "");
}

}  // namespace
}  // namespace carat::hub
