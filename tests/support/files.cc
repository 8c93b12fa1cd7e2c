#include "support/files.h"

#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>

#include <fstream>
#include <stdexcept>
#include <system_error>

namespace carat::test {

namespace fs = std::filesystem;

fs::path source_directory() { return CARAT_SOURCE_DIR; }

std::string model_path(std::string_view name) { return (source_directory() / "models" / name).string(); }

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (fs::temp_directory_path() / "carat-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error(fmt::format("cannot create a temporary folder like {}", pattern));
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // a destructor must not throw, and a left-over folder in /tmp hurts no test
  fs::remove_all(path_, ignored);
}

namespace {

template <typename Container>
Container read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) throw std::runtime_error(fmt::format("cannot open {}", path));
  Container content(static_cast<size_t>(in.tellg()), {});
  in.seekg(0);
  in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  if (!in) throw std::runtime_error(fmt::format("cannot read {}", path));
  return content;
}

void write_whole(const std::string& path, const void* data, size_t size) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", path));
}

}  // namespace

std::vector<std::byte> read_bytes(const std::string& path) { return read_whole<std::vector<std::byte>>(path); }
std::string read_text(const std::string& path) { return read_whole<std::string>(path); }
void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  write_whole(path, bytes.data(), bytes.size());
}
void write_text(const std::string& path, std::string_view text) { write_whole(path, text.data(), text.size()); }

}  // namespace carat::test
