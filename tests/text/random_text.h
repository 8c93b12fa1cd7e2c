#pragma once

#include <array>
#include <string>
#include <string_view>

#include "support/random.h"
#include "text/tokenizer/vocab.h"

namespace carat::text::test {

// Well-formed UTF-8 that trips tokenizers. No U+2581: it is the one character that encoding turns into another.
inline constexpr std::array<std::string_view, 24> kAwkwardCharacters = {
    " ",      "\n",     "\t",         "\r",         std::string_view("\0", 1),
    "0",      "'",      "\u00a0",     "\u00e9",     "e\u0301",
    "\u200d", "\ufeff", "\ufffd",     "\u65e5",     "\u0939\u093f",
    "\u05d0", "\u0e01", "\U0001f600", "\U0001f999", "\U0010ffff",
    "<",      "|>",     "<turn|>",    "<0x41>"};

// A mix of awkward characters, texts of tokens and random code points: up to `parts` of them.
inline std::string random_text(carat::test::Random& random, const Vocab& vocab, uint64_t parts) {
  std::string text;
  for (uint64_t left = random.below(parts + 1); left > 0; --left) {
    switch (random.below(4)) {
      case 0:
        text += kAwkwardCharacters[random.below(kAwkwardCharacters.size())];
        break;
      case 1:
        text += static_cast<char>('a' + random.below(26));
        break;
      case 2: {
        const auto token = static_cast<TokenId>(random.below(vocab.size()));
        if (vocab.type(token) == TokenType::kNormal && vocab.text(token).find("\u2581") == std::string_view::npos) {
          text += vocab.text(token);
        }
        break;
      }
      default:
        text += std::string(1 + random.below(9), random.below(2) == 0 ? ' ' : '\n');
        break;
    }
  }
  return text;
}

}  // namespace carat::text::test
