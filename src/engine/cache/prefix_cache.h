#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/cache/prefix_tree.h"
#include "exec/kept_prefixes.h"

namespace carat::engine {

struct PrefixCacheFigures {
  uint32_t marks = 0;            // positions that can be gone on from
  model::PageCount evicted_for;  // marks that were given up because pages of a kind were needed
};

// What the executor keeps of sequences, by their tokens: the pages of one and the tree of the other.
class PrefixCache {
 public:
  explicit PrefixCache(exec::KeptPrefixes& pages) : pages_(&pages) {}

  exec::KeptPrefixes& pages() { return *pages_; }
  const exec::KeptPrefixes& pages() const { return *pages_; }

  PrefixTree::Match find(const std::string& salt, std::span<const text::TokenId> tokens, uint32_t most) const {
    return tree_.find(salt, tokens, most, [this](exec::PrefixId id, uint32_t n) { return pages_->can_cut(id, n); });
  }
  // Lets an empty sequence of the executor begin with what find() has found for these tokens.
  void resume(uint32_t sequence, const std::string& salt, std::span<const text::TokenId> tokens,
              const PrefixTree::Match& match);
  // Keeps what the executor's sequence holds of the tokens, which are its first ones, where it can be gone on from.
  // Takes no page.
  bool keep(uint32_t sequence, const std::string& salt, std::span<const text::TokenId> tokens, MarkKind kind);
  // Gives up marks until so many pages are free. False: there are none left that would help.
  bool make_room(model::PageCount pages);

  PrefixCacheFigures figures() const;

 private:
  bool make_room(model::PageKind kind, uint32_t pages);

  exec::KeptPrefixes* pages_;
  PrefixTree tree_;
  model::PageCount evicted_for_;
};

}  // namespace carat::engine
