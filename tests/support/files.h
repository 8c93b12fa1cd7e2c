#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat::test {

// The root of the source tree.
std::filesystem::path source_directory();

// A file of the repository's models/ folder, such as "demo-e-q8_0.gguf".
std::string model_path(std::string_view name);

// A new empty folder that disappears with everything in it when the object does.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of `name` in this folder; nothing is created.
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Whole files. A failure throws std::runtime_error naming the path, which fails the test.
std::vector<std::byte> read_bytes(const std::string& path);
std::string read_text(const std::string& path);
void write_bytes(const std::string& path, std::span<const std::byte> bytes);
void write_text(const std::string& path, std::string_view text);

}  // namespace carat::test
