#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace carat::text::test {

// The vocabulary of models/demo-e-q8_0.gguf; loaded once.
std::shared_ptr<const Vocab> demo_vocab();

// The prompts of models/references.json.xz: texts with special tokens as text, and the tokens an independent
// implementation made of them with the demo vocabulary.
struct ReferencePrompt {
  std::string name;
  std::string text;
  std::vector<TokenId> tokens;
};
std::vector<ReferencePrompt> reference_prompts();

// What the demo models greedily continued these prompts with, up to the first token that ends generation.
struct ReferenceOutput {
  std::string model;
  std::string prompt_name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;
  bool stopped;  // by such a token, which is not in `tokens`
};
std::vector<ReferenceOutput> reference_outputs();

}  // namespace carat::text::test
