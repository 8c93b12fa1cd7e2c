#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "demo_vocab.h"
#include "fuzz_check.h"
#include "text/grammar/matcher.h"

namespace carat::fuzz {

// Follows random tokens within the masks of `grammar`: there is always one, it is accepted, and a stop is allowed
// exactly when the text is complete. Returns the text when it was ended by a stop, and "" otherwise.
inline std::string walk_grammar(const text::grammar::Grammar& grammar, uint64_t seed) {
  using namespace text::grammar;
  static const auto trie = std::make_shared<const TokenTrie>(demo_vocab());
  // Little work, so that even the worst grammar is given up long before an input counts as too slow.
  constexpr uint64_t kWork = 200'000;
  constexpr int kTokens = 12;
  std::string text;
  try {
    GrammarMatcher matcher(compile(grammar, trie), kWork);
    for (int i = 0; i < kTokens; ++i) {
      const TokenMask& mask = matcher.allowed();
      const size_t count = mask.count();
      FUZZ_CHECK(count > 0);
      FUZZ_CHECK(mask.allows(demo_vocab()->eos()) == matcher.can_end());
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      uint64_t left = (seed >> 33) % count;
      text::TokenId token = matcher.can_end() && (seed >> 62) == 0 ? demo_vocab()->eos() : -1;
      if (token < 0) {
        mask.for_each([&](text::TokenId each) {
          if (left-- == 0) token = each;
        });
      }
      matcher.accept(token);
      if (matcher.finished()) return text;
      text += trie->bytes(token);
    }
  } catch (const Error& error) {
    FUZZ_CHECK(std::string_view(error.what()).starts_with("the grammar is too ambiguous"));
  }
  return "";
}

}  // namespace carat::fuzz
