#pragma once

#include <string>

#include "cli/help/describe_app.h"

namespace carat::cli {

// Scripts that teach a shell to complete the commands, flags and arguments of the program. Each stands alone: it can be
// sourced, or put into the folder where the shell looks for completions.
std::string bash_completion(const AppDescription& app);
std::string zsh_completion(const AppDescription& app);
std::string fish_completion(const AppDescription& app);

}  // namespace carat::cli
