#include "exec/cuda/passes/ple_cache.h"

#include "base/error.h"

namespace carat::cuda {

void PleCache::place(std::span<const int32_t> tokens, uint32_t slices, int32_t* places, PleFetch* fetches) {
  CARAT_CHECK(tokens.size() <= entries_.size());
  ++pass_;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto [found, is_new] = place_of_.try_emplace(tokens[i], 0);
    if (is_new) {
      found->second = free_place();
      entries_[found->second] = {.token = tokens[i]};
    }
    Entry& entry = entries_[found->second];
    entry.used_again = !is_new;
    entry.last_pass = pass_;
    places[i] = static_cast<int32_t>(found->second);
    fetches[i] = {-1, 0};
    if (entry.slices >= slices) continue;
    entry.slices = slices;
    fetches[i] = {tokens[i], found->second};
    ++fetched_;
  }
}

// The next place that this pass does not need; one that was used again since the hand came by gets another round.
uint32_t PleCache::free_place() {
  for (;; hand_ = (hand_ + 1) % static_cast<uint32_t>(entries_.size())) {
    Entry& entry = entries_[hand_];
    if (entry.last_pass == pass_) continue;
    if (entry.used_again) {
      entry.used_again = false;
      continue;
    }
    if (entry.token >= 0) place_of_.erase(entry.token);
    return hand_;
  }
}

PackedView carve_ple_rows(Carver& carver, Packing packing, uint32_t cols, uint32_t rows) {
  const PackedBytes bytes = packed_bytes(packing);
  PackedView view{.packing = packing, .rows = rows, .cols = cols, .steps = steps_of(cols)};
  const uint64_t cells = uint64_t{rows} * view.steps;
  const auto plane = [&](uint32_t step_bytes) -> const void* {
    return step_bytes == 0 ? nullptr : carver.take<unsigned char>(cells * step_bytes);
  };
  view.quants = plane(bytes.quants);
  view.high = plane(bytes.high);
  view.scales = plane(bytes.scales);
  view.super = plane(bytes.super);
  return view;
}

}  // namespace carat::cuda
