#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat::cli {

// The short flags of several letters that llama.cpp's users have in their fingers: -ngl, -ub, ...
std::span<const std::string_view> long_short_flags();

// The arguments after the program's name, with these flags turned into the long ones the parser knows (--ngl, --ub,
// ...).
std::vector<std::string> normalise_arguments(int count, const char* const* values);

}  // namespace carat::cli
