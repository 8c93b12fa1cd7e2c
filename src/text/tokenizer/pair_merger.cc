#include "text/tokenizer/pair_merger.h"

#include <algorithm>
#include <functional>

namespace carat::text {

namespace {

constexpr size_t kScanLimit = 32;
constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

std::span<const TokenId> PairMerger::merge(std::span<TokenId> symbols) {
  if (symbols.size() < 2) return symbols;
  return symbols.first(symbols.size() <= kScanLimit ? merge_by_scanning(symbols) : merge_by_heap(symbols));
}

size_t PairMerger::merge_by_scanning(std::span<TokenId> symbols) {
  size_t count = symbols.size();
  ranks_.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) ranks_[i] = merges_.rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto pairs_end = ranks_.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto best = std::min_element(ranks_.begin(), pairs_end);  // the first of equal ones
    if (*best == MergeTable::kNone) break;
    const auto left = static_cast<size_t>(best - ranks_.begin());
    symbols[left] = merges_.result(*best);
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(left) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(left) + 1);
    std::copy(best + 1, pairs_end, best);
    --count;
    if (left > 0) ranks_[left - 1] = merges_.rank(symbols[left - 1], symbols[left]);
    if (left + 1 < count) ranks_[left] = merges_.rank(symbols[left], symbols[left + 1]);
  }
  return count;
}

size_t PairMerger::merge_by_heap(std::span<TokenId> symbols) {
  build_list_and_heap(symbols);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t least = heap_.back();
    heap_.pop_back();
    const auto left = static_cast<uint32_t>(least);
    // A rank names its pair, so an entry is out of date exactly when the node's pair has another rank by now.
    if (nodes_[left].rank == static_cast<uint32_t>(least >> 32)) merge_pair(left);
  }
  size_t count = 0;
  for (uint32_t node = 0; node != kEnd; node = nodes_[node].next) symbols[count++] = nodes_[node].symbol;
  return count;
}

void PairMerger::build_list_and_heap(std::span<const TokenId> symbols) {
  const auto count = static_cast<uint32_t>(symbols.size());
  nodes_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const uint32_t rank = last ? MergeTable::kNone : merges_.rank(symbols[i], symbols[i + 1]);
    nodes_[i] = {symbols[i], rank, i == 0 ? kEnd : i - 1, last ? kEnd : i + 1};
    if (rank != MergeTable::kNone) heap_.push_back(uint64_t{rank} << 32 | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::set_pair(uint32_t left) {
  Node& node = nodes_[left];
  node.rank = node.next == kEnd ? MergeTable::kNone : merges_.rank(node.symbol, nodes_[node.next].symbol);
  if (node.rank == MergeTable::kNone) return;
  heap_.push_back(uint64_t{node.rank} << 32 | left);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::merge_pair(uint32_t left) {
  Node& node = nodes_[left];
  Node& gone = nodes_[node.next];
  node.symbol = merges_.result(node.rank);
  gone.rank = MergeTable::kNone;
  node.next = gone.next;
  if (node.next != kEnd) nodes_[node.next].previous = left;
  set_pair(left);
  if (node.previous != kEnd) set_pair(node.previous);
}

}  // namespace carat::text
