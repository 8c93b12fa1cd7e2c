#pragma once

#include <string>
#include <vector>

namespace carat::cli {

// The arguments after the program's name, with the short flags of several letters that llama.cpp's users have in their
// fingers (-ngl, -ub, ...) turned into the long ones the parser knows (--ngl, --ub, ...).
std::vector<std::string> normalise_arguments(int count, const char* const* values);

}  // namespace carat::cli
