#include "exec/paging/paged_sequences.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace carat::exec {

using model::kPageKinds;
using model::PageCount;
using model::PageKind;

PagedSequences::PagedSequences(const model::Config& config, const ExecutorOptions& options,
                               const model::KvPages& geometry, PageCount pages, double bytes_per_value)
    : rules_(config, options),
      geometry_(&geometry),
      pools_{PagePool(pages.global), PagePool(pages.sliding)},
      lengths_(options.sequences),
      tried_from_(options.sequences),
      ends_(options.sequences) {
  copies_.reserve(2 * options.sequences);
  for (const PageKind kind : kPageKinds) {
    CARAT_CHECK(pages.of(kind) >= geometry.entries(kind));
    const auto values = static_cast<double>(geometry.values_per_page(kind, config.L));
    page_bytes_.of(kind) = static_cast<uint64_t>(std::ceil(values * bytes_per_value));
    tables_.of(kind).resize(uint64_t{options.sequences} * geometry.entries(kind));
    held_.of(kind).resize(options.sequences);
    holders_.of(kind).resize(pages.of(kind));
    written_.of(kind).resize(pages.of(kind));
  }
}

PageCount PagedSequences::pages_of_all(const model::KvPages& geometry, uint32_t sequences) {
  PageCount pages;
  for (const PageKind kind : kPageKinds) pages.of(kind) = sequences * geometry.entries(kind);
  return pages;
}

void PagedSequences::assign_all() {
  for (const PageKind kind : kPageKinds) {
    for (uint32_t& page : tables_.of(kind)) page = pools_.of(kind).take();
  }
}

uint32_t& PagedSequences::entry(PageKind kind, uint32_t sequence, uint32_t index) {
  const uint32_t entries = geometry_->entries(kind);
  return tables_.of(kind)[uint64_t{sequence} * entries + index % entries];
}

uint32_t PagedSequences::entry(PageKind kind, uint32_t sequence, uint32_t index) const {
  const uint32_t entries = geometry_->entries(kind);
  return tables_.of(kind)[uint64_t{sequence} * entries + index % entries];
}

// A free page, for a table.
uint32_t PagedSequences::take(PageKind kind) {
  const uint32_t page = pools_.of(kind).take();
  holders_.of(kind)[page] = 1;
  ++held_pages_.of(kind);
  return page;
}

// One that is in use, for a table.
void PagedSequences::share(PageKind kind, uint32_t page) {
  pools_.of(kind).share(page);
  if (holders_.of(kind)[page]++ == 0) ++held_pages_.of(kind);
}

// One that a table no longer refers to.
void PagedSequences::let_go(PageKind kind, uint32_t page) {
  if (--holders_.of(kind)[page] == 0) --held_pages_.of(kind);
  pools_.of(kind).release(page);
}

// Of one kind, to write positions [first, end). A page that a ring replaces is free before its place is taken, unless
// it is shared.
uint32_t PagedSequences::pages_needed(PageKind kind, uint32_t sequence, uint32_t first, uint32_t end) const {
  if (end <= first) return 0;
  const Held& held = held_.of(kind)[sequence];
  const PagePool& pool = pools_.of(kind);
  uint32_t needed = 0;
  for (uint32_t i = first / geometry_->positions(); i < geometry_->pages(end); ++i) {
    if (i < held.end) {
      const uint32_t page = entry(kind, sequence, i);
      const uint32_t offset = i == first / geometry_->positions() ? first % geometry_->positions() : 0;
      needed += pool.references(page) > 1 && offset < written_.of(kind)[page] ? 1 : 0;
      continue;
    }
    const uint32_t entries = geometry_->entries(kind);
    const bool replaces = i >= entries && i - entries >= held.first;
    const bool is_freed = replaces && pool.references(entry(kind, sequence, i)) == 1;
    needed += is_freed ? 0 : 1;
  }
  return needed;
}

PageCount PagedSequences::needed(uint32_t sequence, uint32_t rows) const {
  const uint32_t first = length(sequence);
  PageCount count;
  for (const PageKind kind : kPageKinds) count.of(kind) = pages_needed(kind, sequence, first, first + rows);
  return count;
}

std::span<const PageCopy> PagedSequences::begin(std::span<const Row> rows) {
  ends_ = lengths_;
  for (const Row& row : rows) ends_[row.sequence] = row.position + 1;
  const auto missing = [&]() -> std::optional<std::pair<PageKind, uint32_t>> {
    for (const PageKind kind : kPageKinds) {
      uint32_t needed = 0;
      for (uint32_t s = 0; s < ends_.size(); ++s) needed += pages_needed(kind, s, lengths_[s], ends_[s]);
      if (needed > pools_.of(kind).free()) return std::pair{kind, needed};
    }
    return std::nullopt;
  };
  if (missing()) trim();
  if (const auto what = missing()) {
    fail(ErrorCode::kOutOfMemory, "a pass needs {} pages of the cache of {} layers but {} of {} are free", what->second,
         what->first == PageKind::kGlobal ? "global" : "sliding", pools_.of(what->first).free(),
         pools_.of(what->first).size());
  }
  copies_.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    tried_from_[row.sequence] = lengths_[row.sequence];
    for (const PageKind kind : kPageKinds) make_writable(kind, row.sequence, row.position);
  }
  return copies_;
}

void PagedSequences::make_writable(PageKind kind, uint32_t sequence, uint32_t position) {
  const uint32_t index = position / geometry_->positions(), offset = position % geometry_->positions();
  const uint32_t entries = geometry_->entries(kind);
  Held& held = held_.of(kind)[sequence];
  std::vector<uint32_t>& written = written_.of(kind);
  uint32_t& page = entry(kind, sequence, index);
  if (index >= held.end) {
    if (index >= entries && index - entries >= held.first) release(kind, sequence, held.first, index - entries + 1);
    page = take(kind);
    held.end = index + 1;
  } else if (pools_.of(kind).references(page) > 1 && offset < written[page]) {
    const uint32_t copy = take(kind);
    copies_.push_back({kind, page, copy});
    let_go(kind, page);
    page = copy;
  }
  written[page] = offset + 1;
}

void PagedSequences::commit(std::span<const Row> rows) {
  for (const Row& row : rows) lengths_[row.sequence] = row.position + 1;
}

// Pages [from, to) of a sequence, at one of the ends of what it holds.
void PagedSequences::release(PageKind kind, uint32_t sequence, uint32_t from, uint32_t to) {
  Held& held = held_.of(kind)[sequence];
  for (uint32_t i = from; i < to; ++i) let_go(kind, entry(kind, sequence, i));
  (from == held.first ? held.first : held.end) = from == held.first ? to : from;
}

void PagedSequences::clear(uint32_t sequence) {
  for (const PageKind kind : kPageKinds) {
    Held& held = held_.of(kind)[sequence];
    release(kind, sequence, held.first, held.end);
    held = {};
  }
  lengths_[sequence] = 0;
  tried_from_[sequence] = 0;
}

uint32_t PagedSequences::resumable(uint32_t sequence, uint32_t n) const {
  SequenceRules::check_cut(sequence, n, length(sequence));
  const uint32_t first = geometry_->first_needed(n);
  return first == n || first / geometry_->positions() >= held_.sliding[sequence].first ? n : 0;
}

uint32_t PagedSequences::truncate(uint32_t sequence, uint32_t n) {
  const uint32_t kept = resumable(sequence, n);
  if (kept == 0) {
    clear(sequence);
    return 0;
  }
  for (const PageKind kind : kPageKinds) {
    const Held held = held_.of(kind)[sequence];
    const uint32_t end = std::max(held.first, geometry_->pages(kept));
    for (uint32_t i = end; i < held.end; ++i) let_go(kind, entry(kind, sequence, i));
    held_.of(kind)[sequence].end = std::min(end, held.end);
  }
  lengths_[sequence] = kept;
  tried_from_[sequence] = std::min(tried_from_[sequence], kept);
  return kept;
}

void PagedSequences::trim() {
  for (uint32_t sequence = 0; sequence < lengths_.size(); ++sequence) {
    const Held held = held_.sliding[sequence];
    const uint32_t first = geometry_->first_needed(tried_from_[sequence]) / geometry_->positions();
    if (first > held.first) release(PageKind::kSliding, sequence, held.first, std::min(first, held.end));
  }
}

std::optional<PrefixId> PagedSequences::keep(uint32_t sequence, uint32_t n) {
  CARAT_CHECK(n > 0);
  if (resumable(sequence, n) != n) return std::nullopt;
  Prefix prefix;
  prefix.length = n;
  prefix.first_sliding = geometry_->first_needed(n) / geometry_->positions();
  for (uint32_t i = 0; i < geometry_->pages(n); ++i) prefix.global.push_back(entry(PageKind::kGlobal, sequence, i));
  for (uint32_t i = prefix.first_sliding; i < geometry_->pages(n); ++i) {
    prefix.sliding.push_back(entry(PageKind::kSliding, sequence, i));
  }
  for (const uint32_t page : prefix.global) pools_.global.share(page);
  for (const uint32_t page : prefix.sliding) pools_.sliding.share(page);
  PrefixId id = static_cast<PrefixId>(prefixes_.size());
  if (unused_prefixes_.empty()) {
    prefixes_.push_back(std::move(prefix));
  } else {
    id = unused_prefixes_.back();
    unused_prefixes_.pop_back();
    prefixes_[id] = std::move(prefix);
  }
  return id;
}

void PagedSequences::resume(uint32_t sequence, PrefixId id) {
  CARAT_CHECK(length(sequence) == 0 && id < prefixes_.size() && prefixes_[id].length > 0);
  clear(sequence);  // a pass that failed may have left it pages
  const Prefix& prefix = prefixes_[id];
  const auto take_over = [&](PageKind kind, uint32_t first, const std::vector<uint32_t>& pages) {
    for (uint32_t i = 0; i < pages.size(); ++i) {
      share(kind, pages[i]);
      entry(kind, sequence, first + i) = pages[i];
    }
    held_.of(kind)[sequence] = {first, first + static_cast<uint32_t>(pages.size())};
  };
  take_over(PageKind::kGlobal, 0, prefix.global);
  take_over(PageKind::kSliding, prefix.first_sliding, prefix.sliding);
  lengths_[sequence] = tried_from_[sequence] = prefix.length;
}

bool PagedSequences::can_cut(PrefixId id, uint32_t n) const {
  const uint32_t first = geometry_->first_needed(n);
  return n <= prefixes_[id].length && (first == n || first / geometry_->positions() >= prefixes_[id].first_sliding);
}

void PagedSequences::drop(PrefixId id) {
  CARAT_CHECK(id < prefixes_.size() && prefixes_[id].length > 0);
  for (const uint32_t page : prefixes_[id].global) pools_.global.release(page);
  for (const uint32_t page : prefixes_[id].sliding) pools_.sliding.release(page);
  prefixes_[id] = {};
  unused_prefixes_.push_back(id);
}

PageCount PagedSequences::frees(PrefixId id) const {
  const auto count = [](const PagePool& pool, const std::vector<uint32_t>& pages) {
    return static_cast<uint32_t>(
        std::count_if(pages.begin(), pages.end(), [&](uint32_t page) { return pool.references(page) == 1; }));
  };
  return {count(pools_.global, prefixes_[id].global), count(pools_.sliding, prefixes_[id].sliding)};
}

PageCount PagedSequences::unheld(PrefixId id) const {
  const auto count = [](const std::vector<uint32_t>& holders, const std::vector<uint32_t>& pages) {
    return static_cast<uint32_t>(
        std::count_if(pages.begin(), pages.end(), [&](uint32_t page) { return holders[page] == 0; }));
  };
  return {count(holders_.global, prefixes_[id].global), count(holders_.sliding, prefixes_[id].sliding)};
}

void PagedSequences::check_counts() const {
  for (const PageKind kind : kPageKinds) {
    std::vector<uint32_t> found(pools_.of(kind).size());
    for (uint32_t sequence = 0; sequence < lengths_.size(); ++sequence) {
      const Held& held = held_.of(kind)[sequence];
      CARAT_CHECK(held.end - held.first <= geometry_->entries(kind));
      for (uint32_t i = held.first; i < held.end; ++i) ++found[entry(kind, sequence, i)];
    }
    CARAT_CHECK(found == holders_.of(kind));
    const auto in_tables = std::count_if(found.begin(), found.end(), [](uint32_t count) { return count > 0; });
    CARAT_CHECK(static_cast<uint32_t>(in_tables) == held_pages_.of(kind));
    for (const Prefix& prefix : prefixes_) {
      for (const uint32_t page : kind == PageKind::kGlobal ? prefix.global : prefix.sliding) ++found[page];
    }
    uint32_t free = 0;
    for (uint32_t page = 0; page < found.size(); ++page) {
      CARAT_CHECK(found[page] == pools_.of(kind).references(page));
      free += found[page] == 0 ? 1 : 0;
    }
    CARAT_CHECK(free == pools_.of(kind).free());
  }
}

}  // namespace carat::exec
