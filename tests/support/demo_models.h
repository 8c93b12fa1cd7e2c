#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace carat::test {

// Unpacks an .xz file with the xz program. Throws std::runtime_error when that fails.
std::string unpack_xz(const std::string& path);

// The path of a demo model such as "demo-e-q4_0.gguf": in the repository, or in a folder of larger demo models beside
// it, which not every machine has (a packed one is unpacked into a temporary folder). nullopt when it is in neither.
std::optional<std::string> find_demo_model(std::string_view name);

}  // namespace carat::test
