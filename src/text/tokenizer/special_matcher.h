#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace carat::text {

// Finds the texts of special tokens in a text: the leftmost match, and of several at one place the longest. Time is
// linear in the text whatever the number of specials. Refers to the vocabulary's texts.
class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocab& vocab);

  struct Match {
    size_t begin;
    size_t end;
    TokenId token;
  };
  // The first match that begins at or after `from`.
  std::optional<Match> next(std::string_view text, size_t from) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId token;
  };
  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::vector<Entry> entries_;  // sorted by text
  std::array<bool, 256> starts_ = {};
};

}  // namespace carat::text
