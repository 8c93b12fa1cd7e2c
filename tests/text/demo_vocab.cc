#include "text/demo_vocab.h"

#include <fmt/format.h>
#include <stdio.h>  // popen is POSIX, not in <cstdio>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "gguf/reader.h"
#include "support/files.h"

namespace carat::text::test {

namespace {

std::string decompress(const std::string& path) {
  FILE* pipe = ::popen(fmt::format("xz -dc '{}'", path).c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start xz");
  std::string content;
  std::array<char, 65536> block;
  while (const size_t got = fread(block.data(), 1, block.size(), pipe)) content.append(block.data(), got);
  if (::pclose(pipe) != 0) throw std::runtime_error(fmt::format("xz cannot decompress {}", path));
  return content;
}

}  // namespace

std::shared_ptr<const Vocab> demo_vocab() {
  static const auto vocab =
      Vocab::from_metadata(gguf::ModelFile::open(carat::test::model_path("demo-e-q8_0.gguf"))->metadata());
  return vocab;
}

std::vector<ReferencePrompt> reference_prompts() {
  const auto references = nlohmann::json::parse(decompress(carat::test::model_path("references.json.xz")));
  std::vector<ReferencePrompt> prompts;
  for (const auto& prompt : references.at("prompts")) {
    prompts.push_back({prompt.at("name"), prompt.at("text"), prompt.at("tokens")});
  }
  return prompts;
}

}  // namespace carat::text::test
