#pragma once

#include <string>
#include <string_view>

namespace carat::gguf {

// Text from a file in single quotes, fit for a message: control characters and malformed UTF-8 appear as \xNN, so that
// a file cannot write to the user's terminal, and long texts are cut.
std::string printable(std::string_view text);

}  // namespace carat::gguf
