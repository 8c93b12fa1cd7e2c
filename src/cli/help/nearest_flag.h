#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace carat::cli {

// How many letters must be left out, added, changed or exchanged with their neighbour to make one word of the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The flag of `command` that `word` most likely means: "--prot" -> "--port". Empty where none is near.
std::string nearest_flag(const CLI::App& command, std::string_view word);

}  // namespace carat::cli
