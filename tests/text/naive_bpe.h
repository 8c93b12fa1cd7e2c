#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/tokenizer/vocab.h"

namespace carat::text::test {

// docs/gemma4.md 4.3, steps 3 to 5 word for word and without any of the tokenizer's tables but the merges: the whole
// text is one list of symbols, and every step searches all pairs.
inline std::vector<TokenId> naive_encode(const Vocab& vocab, std::string_view text) {
  std::string normalised;
  for (const char c : text) normalised += c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
  std::vector<std::string> symbols;
  for (size_t at = 0; at < normalised.size();) {
    const size_t length = std::max<size_t>(utf8_sequence_length(std::string_view(normalised).substr(at)), 1);
    symbols.push_back(normalised.substr(at, length));
    at += length;
  }
  for (;;) {
    uint32_t best_rank = std::numeric_limits<uint32_t>::max();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto left = vocab.find(symbols[i]), right = vocab.find(symbols[i + 1]);
      const auto merge = left && right ? vocab.merge(*left, *right) : std::nullopt;
      if (merge && merge->rank < best_rank) {
        best_rank = merge->rank;
        best = i;
      }
    }
    if (best_rank == std::numeric_limits<uint32_t>::max()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> tokens;
  for (const std::string& symbol : symbols) {
    if (const auto id = vocab.find(symbol)) {
      tokens.push_back(*id);
    } else {
      for (const char c : symbol) tokens.push_back(vocab.byte_token(static_cast<uint8_t>(c)));
    }
  }
  return tokens;
}

}  // namespace carat::text::test
