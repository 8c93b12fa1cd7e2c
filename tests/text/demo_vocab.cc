#include "text/demo_vocab.h"

#include <fmt/format.h>
#include <stdio.h>  // popen is POSIX, not in <cstdio>

#include <algorithm>
#include <array>
#include <map>
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

const nlohmann::json& references_document() {
  static const auto document = nlohmann::json::parse(decompress(carat::test::model_path("references.json.xz")));
  return document;
}

}  // namespace

std::shared_ptr<const Vocab> demo_vocab() {
  static const auto vocab =
      Vocab::from_metadata(gguf::ModelFile::open(carat::test::model_path("demo-e-q8_0.gguf"))->metadata());
  return vocab;
}

std::vector<ReferencePrompt> reference_prompts() {
  std::vector<ReferencePrompt> prompts;
  for (const auto& prompt : references_document().at("prompts")) {
    prompts.push_back({prompt.at("name"), prompt.at("text"), prompt.at("tokens")});
  }
  return prompts;
}

std::vector<ReferenceOutput> reference_outputs() {
  std::map<std::string, std::vector<TokenId>> prompts;
  for (const ReferencePrompt& prompt : reference_prompts()) prompts[prompt.name] = prompt.tokens;
  std::vector<ReferenceOutput> outputs;
  for (const auto& [model, file] : references_document().at("files").items()) {
    for (const auto& result : file.at("results")) {
      const std::string name = result.at("prompt");
      std::vector<TokenId> tokens = result.at("greedy");
      const auto stop = std::find_if(tokens.begin(), tokens.end(), [](TokenId t) { return demo_vocab()->is_stop(t); });
      const bool stopped = stop != tokens.end();
      tokens.erase(stop, tokens.end());
      outputs.push_back({model, name, prompts.at(name), std::move(tokens), stopped});
    }
  }
  return outputs;
}

}  // namespace carat::text::test
