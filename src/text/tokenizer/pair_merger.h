#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/merge_table.h"

namespace carat::text {

// Merges the symbols of one piece of text: again and again the adjacent pair of the lowest rank, the leftmost among
// equals, until no pair merges (docs/gemma4.md 4.3 step 4). Keeps its work space between pieces; one object per thread.
class PairMerger {
 public:
  explicit PairMerger(const MergeTable& merges) : merges_(merges) {}

  // Merges in place and returns the symbols that remain, a prefix of `symbols`. Fewer than 2^32 symbols.
  std::span<const TokenId> merge(std::span<TokenId> symbols);

 private:
  // A search through all pairs for each merge: quadratic, but the fastest for the few symbols of a word.
  size_t merge_by_scanning(std::span<TokenId> symbols);
  // A heap of pairs over a linked list of symbols: O(n log n).
  size_t merge_by_heap(std::span<TokenId> symbols);

  void build_list_and_heap(std::span<const TokenId> symbols);
  void set_pair(uint32_t left);
  void merge_pair(uint32_t left);

  struct Node {
    TokenId symbol;
    uint32_t rank;  // of the pair (this, next); kNone when they do not merge, there is no next, or this node is gone
    uint32_t previous;
    uint32_t next;
  };

  const MergeTable& merges_;
  std::vector<uint32_t> ranks_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | index of the left node, least first
};

}  // namespace carat::text
