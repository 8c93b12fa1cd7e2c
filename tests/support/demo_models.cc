#include "support/demo_models.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "support/files.h"

namespace carat::test {

std::string unpack_xz(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(fmt::format("xz -dc '{}'", path).c_str(), "r"), pclose);
  std::string content;
  std::array<char, 1 << 16> buffer;
  while (pipe) {
    const size_t count = fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (count == 0) break;
    content.append(buffer.data(), count);
  }
  if (content.empty()) throw std::runtime_error(fmt::format("{} cannot be unpacked: is xz installed?", path));
  return content;
}

std::optional<std::string> find_demo_model(std::string_view name) {
  namespace fs = std::filesystem;
  if (fs::exists(model_path(name))) return model_path(name);
  const fs::path beside = source_directory().parent_path() / "shared" / "models" / name;
  if (fs::exists(beside)) return beside.string();
  const std::string packed = beside.string() + ".xz";
  if (!fs::exists(packed)) return std::nullopt;
  static const TemporaryDirectory folder;
  const std::string unpacked = folder.file(name);
  if (!fs::exists(unpacked)) write_text(unpacked, unpack_xz(packed));
  return unpacked;
}

}  // namespace carat::test
