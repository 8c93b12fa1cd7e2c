#include "support/references.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/demo_models.h"
#include "support/files.h"

namespace carat::test {
namespace {

std::string decode_base64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos) throw std::runtime_error("references: not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return bytes;
}

template <typename T>
std::vector<T> decode_array(const nlohmann::json& json) {
  const std::string bytes = decode_base64(json.get<std::string>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

const nlohmann::json& all_references() {
  static const nlohmann::json json = nlohmann::json::parse(unpack_xz(model_path("references.json.xz")));
  return json;
}

}  // namespace

std::vector<Reference> load_references(std::string_view model_file) {
  const nlohmann::json& json = all_references();
  std::map<std::string, std::vector<int32_t>> tokens;
  for (const auto& prompt : json.at("prompts"))
    tokens[prompt.at("name")] = prompt.at("tokens").get<std::vector<int32_t>>();
  const auto file = json.at("files").find(std::string(model_file));
  if (file == json.at("files").end()) throw std::runtime_error(fmt::format("no references for {}", model_file));
  std::vector<Reference> references;
  for (const auto& result : file->at("results")) {
    Reference reference;
    reference.prompt = result.at("prompt");
    reference.tokens = tokens.at(reference.prompt);
    reference.first = result.at("first");
    reference.top_ids = decode_array<uint16_t>(result.at("top_ids"));
    reference.top_logits = decode_array<float>(result.at("top_logits"));
    if (result.contains("last_logits")) reference.last_logits = decode_array<float>(result.at("last_logits"));
    if (result.contains("layers")) reference.layers = decode_array<float>(result.at("layers"));
    reference.greedy = result.at("greedy").get<std::vector<int32_t>>();
    reference.gaps = result.at("gaps").get<std::vector<float>>();
    if (reference.top_ids.size() != reference.positions() * Reference::kTop ||
        reference.top_logits.size() != reference.top_ids.size() || reference.gaps.size() != reference.greedy.size()) {
      throw std::runtime_error(fmt::format("the references of {} have odd sizes", reference.prompt));
    }
    references.push_back(std::move(reference));
  }
  return references;
}

}  // namespace carat::test
