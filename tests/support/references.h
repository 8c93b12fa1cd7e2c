#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat::test {

// What an independent fp32 implementation computed for one demo model and one prompt (models/references.json.xz).
struct Reference {
  static constexpr size_t kTop = 20;

  std::string prompt;  // its name
  std::vector<int32_t> tokens;
  uint32_t first = 0;              // positions [first, tokens.size()) have top tokens
  std::vector<uint16_t> top_ids;   // [positions, kTop], best first
  std::vector<float> top_logits;   // [positions, kTop]
  std::vector<float> last_logits;  // [V] after the last token; empty for most prompts
  std::vector<float> layers;       // [L + 2, d] at the last position: embedding, after each layer, final norm; or empty
  std::vector<int32_t> greedy;     // the tokens chosen greedily after the prompt
  std::vector<float> gaps;         // by how much each of them won

  size_t positions() const { return tokens.size() - first; }
};

// All prompts of one model file, such as "demo-e-q8_0.gguf". Throws std::runtime_error when there are none.
std::vector<Reference> load_references(std::string_view model_file);

}  // namespace carat::test
