#include "support/tiny_vocabulary.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace carat::test {
namespace {

enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kByte = 6 };

class Tokens {
 public:
  void add(const std::string& text, TokenType type) {
    texts.push_back(text);
    types.push_back(type);
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

}  // namespace

uint32_t add_tiny_vocabulary(GgufDraft& draft) {
  Tokens tokens;
  for (const char* text :
       {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool>", "<tool|>", "<|think|>", "<|turn>", "<turn|>",
        "<|image>", "<image|>", "<|audio>", "<audio|>", "<|image|>", "<|audio|>", "<|video|>"}) {
    tokens.add(text, kControl);
  }
  for (const char* text :
       {"<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>", "<|channel>", "<channel|>"}) {
    tokens.add(text, kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) tokens.add(fmt::format("<0x{:02X}>", byte), kByte);
  tokens.add("\n", kNormal);
  tokens.add("\u2581", kNormal);
  for (char c = '!'; c <= '~'; ++c) tokens.add(std::string(1, c), kNormal);
  const std::vector<std::string> merges = {"t h", "i n", "a n", "e r", "th e", "in g", "\u2581 the", "an d"};
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    tokens.add(merge.substr(0, space) + merge.substr(space + 1), kNormal);
  }

  const std::string prefix = "tokenizer.ggml.";
  draft.keys[prefix + "model"] = std::string("gemma4");
  draft.keys[prefix + "tokens"] = tokens.texts;
  draft.keys[prefix + "scores"] = std::vector<float>(tokens.texts.size(), -1000.0f);
  draft.keys[prefix + "token_type"] = tokens.types;
  draft.keys[prefix + "merges"] = merges;
  draft.keys[prefix + "padding_token_id"] = uint32_t{0};
  draft.keys[prefix + "eos_token_id"] = uint32_t{1};
  draft.keys[prefix + "bos_token_id"] = uint32_t{2};
  draft.keys[prefix + "unknown_token_id"] = uint32_t{3};
  draft.keys[prefix + "mask_token_id"] = uint32_t{4};
  draft.keys[prefix + "add_bos_token"] = true;
  draft.keys[prefix + "add_space_prefix"] = false;
  return static_cast<uint32_t>(tokens.texts.size());
}

}  // namespace carat::test
