#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/vocab.h"

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

}  // namespace carat::text::test
