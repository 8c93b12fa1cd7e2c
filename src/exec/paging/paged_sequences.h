#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "exec/kept_prefixes.h"
#include "exec/paging/page_pool.h"
#include "exec/sequence_rules.h"
#include "model/kv_pages.h"

namespace carat::exec {

// A page whose contents a pass has to copy before it writes, because others read the page it is made from.
struct PageCopy {
  model::PageKind kind;
  uint32_t from, to;
};

// The sequences of an executor whose caches are pages (model::KvPages): their lengths, which pages they hold, and what
// is kept of them. Bookkeeping alone; the executor moves the bytes.
class PagedSequences final : public KeptPrefixes {
 public:
  // Throws as SequenceRules does. `pages` are at least what one sequence can need. bytes_per_value: of what is cached.
  PagedSequences(const model::Config& config, const ExecutorOptions& options, const model::KvPages& geometry,
                 model::PageCount pages, double bytes_per_value = 1.0);

  // What all sequences need at once, when each is as long as it can be.
  static model::PageCount pages_of_all(const model::KvPages& geometry, uint32_t sequences);
  // Gives every sequence all pages it can need, for good: for owners who keep the lengths themselves. Nothing else may
  // be called afterwards but page().
  void assign_all();

  uint32_t page(model::PageKind kind, uint32_t sequence, uint32_t position) const {
    return tables_.of(kind)[uint64_t{sequence} * geometry_->entries(kind) + geometry_->entry(kind, position)];
  }
  // The table of one sequence, whose entries geometry.entry() names.
  const uint32_t* table(model::PageKind kind, uint32_t sequence) const {
    return tables_.of(kind).data() + uint64_t{sequence} * geometry_->entries(kind);
  }

  uint32_t length(uint32_t sequence) const { return lengths_[rules_.existing(sequence)]; }
  // Throws kBadArgument when the rows break a rule; changes nothing.
  void check(std::span<const Row> rows) const { rules_.check(rows, lengths_); }
  // Call before the first cache write of a pass: takes the pages its rows are written to. What it returns has to be
  // copied first, in this order; valid until the next call. Throws kOutOfMemory when not enough pages are free; then
  // nothing was changed.
  std::span<const PageCopy> begin(std::span<const Row> rows);
  void commit(std::span<const Row> rows);  // call when the pass succeeded
  uint32_t truncate(uint32_t sequence, uint32_t n);
  uint32_t resumable(uint32_t sequence, uint32_t n) const;

  uint32_t page_positions() const override { return geometry_->positions(); }
  model::PageCount total() const override { return {pools_.global.size(), pools_.sliding.size()}; }
  model::PageCount free() const override { return {pools_.global.free(), pools_.sliding.free()}; }
  model::PageCount held() const override { return held_pages_; }
  uint64_t page_bytes(model::PageKind kind) const override { return page_bytes_.of(kind); }
  uint32_t window_pages() const override { return geometry_->window_pages(); }
  model::PageCount needed(uint32_t sequence, uint32_t rows) const override;
  void trim() override;
  std::optional<PrefixId> keep(uint32_t sequence, uint32_t n) override;
  void resume(uint32_t sequence, PrefixId prefix) override;
  bool can_cut(PrefixId prefix, uint32_t n) const override;
  void drop(PrefixId prefix) override;
  model::PageCount frees(PrefixId prefix) const override;
  model::PageCount unheld(PrefixId prefix) const override;

  // For tests: throws when a page is referred to more or less often than it is counted.
  void check_counts() const;

 private:
  template <typename T>
  struct ByKind {
    T global, sliding;
    T& of(model::PageKind kind) { return kind == model::PageKind::kGlobal ? global : sliding; }
    const T& of(model::PageKind kind) const { return kind == model::PageKind::kGlobal ? global : sliding; }
  };
  // Which pages a table has: numbers of pages of its sequence, [first, end).
  struct Held {
    uint32_t first = 0, end = 0;
  };
  struct Prefix {
    uint32_t length = 0;  // 0: the number is free
    uint32_t first_sliding = 0;
    std::vector<uint32_t> global, sliding;
  };

  uint32_t& entry(model::PageKind kind, uint32_t sequence, uint32_t index);
  uint32_t entry(model::PageKind kind, uint32_t sequence, uint32_t index) const;
  uint32_t take(model::PageKind kind);
  void share(model::PageKind kind, uint32_t page);
  void let_go(model::PageKind kind, uint32_t page);
  uint32_t pages_needed(model::PageKind kind, uint32_t sequence, uint32_t first, uint32_t end) const;
  void make_writable(model::PageKind kind, uint32_t sequence, uint32_t position);
  void release(model::PageKind kind, uint32_t sequence, uint32_t from, uint32_t to);
  void clear(uint32_t sequence);

  SequenceRules rules_;
  const model::KvPages* geometry_;
  ByKind<uint64_t> page_bytes_;
  ByKind<PagePool> pools_;
  ByKind<std::vector<uint32_t>> tables_;   // [sequences][entries]
  ByKind<std::vector<Held>> held_;         // [sequences]
  ByKind<std::vector<uint32_t>> holders_;  // [pages]: sequences that refer to them
  // [pages]: positions up to the last that was written. Whoever shares a page reads no further, so one of them may go
  // on writing behind it; who wants to write before has to copy.
  ByKind<std::vector<uint32_t>> written_;
  model::PageCount held_pages_;       // with a holder
  std::vector<uint32_t> lengths_;     // [sequences]
  std::vector<uint32_t> tried_from_;  // [sequences]: their lengths before the last pass
  std::vector<Prefix> prefixes_;
  std::vector<PrefixId> unused_prefixes_;
  // Of the pass that begins; kept so that a pass allocates nothing.
  std::vector<uint32_t> ends_;  // [sequences]: their lengths after it
  std::vector<PageCopy> copies_;
};

}  // namespace carat::exec
