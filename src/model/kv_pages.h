#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/config.h"

namespace carat::model {

// Global layers see everything and keep a page of every 64 positions; sliding layers need the pages of a window.
enum class PageKind { kGlobal, kSliding };
inline constexpr std::array kPageKinds = {PageKind::kGlobal, PageKind::kSliding};

// A number of pages of each kind.
struct PageCount {
  uint32_t global = 0;
  uint32_t sliding = 0;
  uint32_t& of(PageKind kind) { return kind == PageKind::kGlobal ? global : sliding; }
  uint32_t of(PageKind kind) const { return kind == PageKind::kGlobal ? global : sliding; }
  bool operator==(const PageCount&) const = default;
};

inline constexpr uint32_t kPagePositions = 64;

// How keys and values lie in pages. A page holds consecutive positions of all owner layers of its kind: position p is
// in the page of its sequence's table entry (p / positions()) % entries(kind). A table of global pages has an entry for
// each page of the context; one of sliding pages is a ring that holds the window of every row of a pass.
//
// Keys and values of a layer are planes of rows, [pages][Hkv][positions()][hd], so a page is one piece of each plane.
class KvPages {
 public:
  // chunk: the most rows of one sequence in one forward pass.
  KvPages(const Config& config, uint32_t context, uint32_t chunk, uint32_t positions = kPagePositions);

  uint32_t positions() const { return positions_; }
  uint32_t context() const { return context_; }
  uint32_t entries(PageKind kind) const { return entries_.of(kind); }
  uint32_t entry(PageKind kind, uint32_t position) const { return position / positions_ % entries_.of(kind); }
  // The pages that hold positions [0, n).
  uint32_t pages(uint32_t n) const { return (n + positions_ - 1) / positions_; }

  // The first position that the window of a row at n reaches back to.
  uint32_t first_needed(uint32_t n) const { return n >= window_ ? n - window_ + 1 : 0; }
  // Sliding pages that hold the window before n, whatever n is: what it costs to keep a position to go on from.
  uint32_t window_pages() const;

  // Of an owner layer.
  PageKind kind(uint32_t layer) const { return layers_[layer].kind; }
  uint64_t rows(uint32_t layer, PageCount pages) const {
    return uint64_t{pages.of(layers_[layer].kind)} * layers_[layer].Hkv * positions_;
  }
  // The row of a plane that holds a position and key/value head, for the page its table names.
  uint64_t row(uint32_t layer, uint32_t page, uint32_t kv_head, uint32_t position) const {
    return (uint64_t{page} * layers_[layer].Hkv + kv_head) * positions_ + position % positions_;
  }
  uint64_t rows_per_page(uint32_t layer) const { return uint64_t{layers_[layer].Hkv} * positions_; }
  // Values (keys and values together) that a page holds in all layers of its kind below `layers`.
  uint64_t values_per_page(PageKind kind, uint32_t layers) const;

 private:
  struct LayerPages {
    bool owns = false;
    PageKind kind = PageKind::kGlobal;
    uint32_t Hkv = 0, hd = 0;
  };

  uint32_t positions_;
  uint32_t context_;
  uint32_t window_;
  PageCount entries_;
  std::vector<LayerPages> layers_;  // [L]
};

}  // namespace carat::model
