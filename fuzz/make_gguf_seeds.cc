// make_gguf_seeds FOLDER: one file per container that the tests know, valid or hostile, as long as it is small.
#include <filesystem>
#include <fstream>

#include "support/gguf_sketch.h"
#include "support/hostile_gguf.h"

namespace {

constexpr size_t kLargestSeed = 4096;

void write_file(const std::filesystem::path& path, const carat::test::Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.exceptions(std::ios::badbit | std::ios::failbit);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const carat::test::HostileGguf& file : carat::test::hostile_ggufs()) {
    if (file.bytes.size() <= kLargestSeed) write_file(folder / ("hostile-" + std::to_string(number++)), file.bytes);
  }
  write_file(folder / "empty", carat::test::GgufSketch{}.encode());
  for (uint32_t type = 0; type <= 43; ++type) {  // one block or several of every type there is, and of none
    carat::test::GgufSketch file;
    file.tensors.push_back({.name = "t", .ne = {256}, .type = type});
    file.data_bytes = 1024;
    write_file(folder / ("type-" + std::to_string(type)), file.encode());
  }
  write_file(folder / "tiny", carat::test::tiny_gguf().encode());
}
