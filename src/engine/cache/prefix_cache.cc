#include "engine/cache/prefix_cache.h"

#include "base/error.h"

namespace carat::engine {

void PrefixCache::resume(uint32_t sequence, const std::string& salt, std::span<const text::TokenId> tokens,
                         const PrefixTree::Match& match) {
  CARAT_CHECK(match.prefix.has_value());
  pages_->resume(sequence, *match.prefix);
  tree_.use(salt, tokens.first(match.length));
}

bool PrefixCache::keep(uint32_t sequence, const std::string& salt, std::span<const text::TokenId> tokens,
                       MarkKind kind) {
  if (tokens.empty()) return false;
  const auto prefix = pages_->keep(sequence, static_cast<uint32_t>(tokens.size()));
  if (!prefix) return false;
  if (!tree_.add(salt, tokens, kind, *prefix)) pages_->drop(*prefix);
  return true;
}

bool PrefixCache::make_room(model::PageKind kind, uint32_t pages) {
  const auto is_short = [&] { return pages_->free().of(kind) < pages; };
  if (kind == model::PageKind::kSliding && is_short()) pages_->trim();
  while (is_short()) {
    auto prefix = tree_.evict([&](exec::PrefixId id) { return pages_->frees(id).of(kind) > 0; });
    // Marks that share all their pages with one another free nothing one by one.
    if (!prefix) prefix = tree_.evict_last();
    if (!prefix) return false;
    pages_->drop(*prefix);
    ++evicted_for_.of(kind);
  }
  return true;
}

bool PrefixCache::make_room(model::PageCount pages) {
  return make_room(model::PageKind::kGlobal, pages.global) && make_room(model::PageKind::kSliding, pages.sliding);
}

PrefixCacheFigures PrefixCache::figures() const { return {static_cast<uint32_t>(tree_.marks()), evicted_for_}; }

}  // namespace carat::engine
