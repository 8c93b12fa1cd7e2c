#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Where the latest tokens of a growing text have occurred before: the longest match first, the most recent one among
// equals. For each length there is a table from the n-grams of the text to where they last ended. A token costs one
// step in each table, however long the text is, and asking costs nothing: the place that is looked for is the one the
// new token displaces.
//
// Tables hold positions only (4 bytes each, at most half of them used); n-grams are compared in the text itself. An
// n-gram that finds no place within a few steps takes another's: at worst a draft is missed, and no text, however it
// was made, can turn the steps into a search.
class NgramIndex {
 public:
  struct Match {
    uint32_t length;  // tokens
    uint32_t end;     // position after the earlier occurrence: what followed it begins there
  };

  // n-grams of `shortest` to `longest` tokens, 1 <= shortest <= longest.
  NgramIndex(uint32_t shortest, uint32_t longest);

  // Takes in the tokens that are new. `text`: the same tokens as the last time, and more.
  void extend(std::span<const text::TokenId> text);
  uint32_t indexed() const { return indexed_; }

  // Of the end of the text.
  std::optional<Match> match() const { return match_; }

 private:
  class Table {
   public:
    explicit Table(uint32_t n) : n_(n) {}
    void reserve(std::span<const text::TokenId> text, size_t ngrams);
    // Notes that the n-gram with this hash ends before `end`; returns where it ended before, or 0.
    uint32_t exchange(std::span<const text::TokenId> text, uint64_t hash, uint32_t end);

   private:
    size_t home(uint64_t hash) const;

    uint32_t n_;
    int shift_ = 64;              // of a hash, so that the index of a slot is left
    std::vector<uint32_t> ends_;  // 0: free, since nothing ends there
  };

  void append(std::span<const text::TokenId> text, uint32_t end);

  uint32_t shortest_;
  uint32_t indexed_ = 0;
  std::vector<Table> tables_;  // of the lengths from shortest_ on
  std::optional<Match> match_;
};

// What followed a match, `count` tokens of it. Where the match reaches into the end of the text, the text repeats
// itself, and the draft does too.
void draft_from(std::span<const text::TokenId> text, const NgramIndex::Match& match, uint32_t count,
                std::vector<text::TokenId>& draft);

}  // namespace carat::engine
