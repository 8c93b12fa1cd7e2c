#include "cli/arguments.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace carat::cli {

namespace {
// A parser of POSIX short flags reads "-ngl 9" as "-n gl". A prompt that consists of just one of these words must be
// given as --prompt=-ngl.
constexpr std::array<std::string_view, 9> kLongShortFlags = {"-ngl", "-ub",  "-fa", "-ctk", "-ctv",
                                                             "-pg",  "-npl", "-np", "-to"};
}  // namespace

std::span<const std::string_view> long_short_flags() { return kLongShortFlags; }

std::vector<std::string> normalise_arguments(int count, const char* const* values) {
  std::vector<std::string> arguments;
  for (int i = 1; i < count; ++i) {
    std::string argument = values[i];
    const std::string_view flag = std::string_view(argument).substr(0, argument.find('='));
    if (std::find(kLongShortFlags.begin(), kLongShortFlags.end(), flag) != kLongShortFlags.end()) {
      argument.insert(argument.begin(), '-');
    }
    if (argument == "--") {  // what follows is text
      arguments.insert(arguments.end(), values + i, values + count);
      break;
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace carat::cli
