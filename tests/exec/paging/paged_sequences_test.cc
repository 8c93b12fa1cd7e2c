#include "exec/paging/paged_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/error.h"
#include "support/raised_error.h"
#include "support/random.h"

namespace carat::exec {
namespace {

using model::PageCount;
using model::PageKind;
using testing::HasSubstr;

constexpr uint32_t kPage = 4;

// One sliding layer with a window of 8 and one that sees everything.
model::Config two_layers() {
  model::Config config;
  config.L = 2;
  config.n_kv = 2;
  config.V = 100;
  config.W = 8;
  for (uint32_t i = 0; i < 2; ++i) {
    config.layers.push_back(
        {.index = i, .sliding = i == 0, .H = 1, .Hkv = 1, .hd = 2, .owns_kv = true, .kv_source = i});
  }
  return config;
}

ExecutorOptions options_of(uint32_t sequences) {
  ExecutorOptions options;
  options.context = 64;
  options.sequences = sequences;
  options.chunk = 6;
  options.outputs = 6;
  return options;
}

class PagedSequencesTest : public testing::Test {
 protected:
  static constexpr uint32_t kSequences = 3;

  explicit PagedSequencesTest(PageCount pages = {48, 40})
      : geometry_(config_, 64, 6, kPage), table_(config_, options_of(kSequences), geometry_, pages) {}

  // Appends so many rows in one pass.
  std::vector<PageCopy> append(uint32_t sequence, uint32_t count) {
    std::vector<Row> rows;
    for (uint32_t i = 0; i < count; ++i) rows.push_back({1, table_.length(sequence) + i, sequence, false});
    table_.check(rows);
    const auto copies = table_.begin(rows);
    std::vector<PageCopy> result(copies.begin(), copies.end());
    table_.commit(rows);
    table_.check_counts();
    return result;
  }
  void fill(uint32_t sequence, uint32_t count) {
    for (; count > 0; count -= std::min(count, 6u)) append(sequence, std::min(count, 6u));
  }
  PageCount used() const {
    return {table_.total().global - table_.free().global, table_.total().sliding - table_.free().sliding};
  }

  const model::Config config_ = two_layers();
  const model::KvPages geometry_;
  PagedSequences table_;
};

TEST_F(PagedSequencesTest, ASequenceHoldsWhatItsLengthNeeds) {
  EXPECT_EQ(geometry_.entries(PageKind::kGlobal), 16u);
  EXPECT_EQ(geometry_.entries(PageKind::kSliding), 4u);  // 7 + 6 positions touch four pages of four at most
  EXPECT_EQ(geometry_.window_pages(), 3u);
  append(0, 1);
  EXPECT_EQ(used(), (PageCount{1, 1}));
  append(0, 6);
  EXPECT_EQ(used(), (PageCount{2, 2}));
  fill(0, 57);
  EXPECT_EQ(table_.length(0), 64u);
  EXPECT_EQ(used(), (PageCount{16, 4}));
  EXPECT_EQ(table_.truncate(0, 0), 0u);
  EXPECT_EQ(used(), (PageCount{0, 0}));
}

TEST_F(PagedSequencesTest, PagesBehindTheWindowAreTrimmedAndTheLastPassCanStillBeTakenBack) {
  fill(0, 42);
  append(0, 1);
  append(0, 1);
  EXPECT_EQ(used().sliding, 4u);
  EXPECT_EQ(table_.resumable(0, 38), 38u);
  table_.trim();
  table_.check_counts();
  EXPECT_EQ(used().sliding, 2u);  // the last pass began at 43, whose window begins at 36
  EXPECT_EQ(table_.resumable(0, 38), 0u);
  EXPECT_EQ(table_.truncate(0, 43), 43u);
  append(0, 6);
  EXPECT_EQ(table_.length(0), 49u);
}

TEST_F(PagedSequencesTest, AKeptPrefixIsSharedAndCopiedOnlyWhereItIsWrittenOn) {
  fill(0, 30);
  const PageCount before = used();
  const auto prefix = table_.keep(0, 30);
  ASSERT_TRUE(prefix);
  EXPECT_EQ(used(), before);
  table_.resume(1, *prefix);
  table_.resume(2, *prefix);
  table_.check_counts();
  EXPECT_EQ(used(), before);
  for (uint32_t p = 23; p < 30; ++p) {
    EXPECT_EQ(table_.page(PageKind::kSliding, 1, p), table_.page(PageKind::kSliding, 0, p)) << p;
  }
  const uint32_t last = table_.page(PageKind::kGlobal, 0, 29);
  // Position 30 lies in the page of 28 and 29: the first to write it goes on there, the others copy.
  EXPECT_EQ(table_.needed(0, 1), (PageCount{0, 0}));
  EXPECT_TRUE(append(0, 1).empty());
  EXPECT_EQ(table_.needed(1, 1), (PageCount{1, 1}));
  EXPECT_EQ(append(1, 1).size(), 2u);
  EXPECT_EQ(table_.page(PageKind::kGlobal, 0, 29), last);
  EXPECT_NE(table_.page(PageKind::kGlobal, 1, 29), last);
  EXPECT_EQ(table_.page(PageKind::kGlobal, 1, 27), table_.page(PageKind::kGlobal, 0, 27));
  EXPECT_TRUE(append(1, 1).empty());  // its own by now
  EXPECT_EQ(append(2, 1).size(), 2u);
  table_.truncate(0, 0);
  table_.truncate(1, 0);
  table_.truncate(2, 0);
  EXPECT_EQ(used(), (PageCount{8, 3}));  // what is kept: 30 positions, and those from 23 on
  EXPECT_EQ(table_.frees(*prefix), (PageCount{8, 3}));
  table_.drop(*prefix);
  table_.check_counts();
  EXPECT_EQ(used(), (PageCount{0, 0}));
}

TEST_F(PagedSequencesTest, APositionWhoseWindowIsGoneIsNotKept) {
  fill(0, 40);
  EXPECT_FALSE(table_.keep(0, 12));
  EXPECT_TRUE(table_.keep(0, 36));
  table_.check_counts();
}

class NearlyFull : public PagedSequencesTest {
 protected:
  NearlyFull() : PagedSequencesTest({16, 9}) {}
};

TEST_F(NearlyFull, APassThatDoesNotFitChangesNothing) {
  fill(0, 60);
  const PageCount before = used();
  const std::vector<Row> rows = {
      {1, 0, 1, false}, {1, 1, 1, false}, {1, 2, 1, false}, {1, 3, 1, false}, {1, 4, 1, true}};
  EXPECT_EQ(table_.needed(1, 5), (PageCount{2, 2}));
  const auto error = test::error_of([&] { table_.begin(rows); });
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(error.message, HasSubstr("2 pages of the cache of global layers but 1 of 16 are free"));
  table_.check_counts();
  EXPECT_EQ(used(), before);
  append(1, 4);
}

// Random traffic over pages that hold, for every cell, the tokens up to it: what a sequence reads must be its own text,
// whatever was shared, copied, cut back and dropped.
TEST_F(PagedSequencesTest, EverySequenceReadsItsOwnText) {
  using Text = std::vector<int32_t>;
  struct Kept {
    PrefixId id;
    Text text;
  };
  std::map<std::pair<PageKind, uint32_t>, std::array<Text, kPage>> memory;
  std::vector<Text> texts(kSequences);
  std::vector<Kept> kept;
  test::Random random(5);
  const auto below = [&](size_t limit) { return static_cast<uint32_t>(random.below(limit)); };
  size_t resumed = 0;
  for (int round = 0; round < 20000; ++round) {
    const uint32_t sequence = below(kSequences);
    Text& text = texts[sequence];
    const uint32_t what = below(10);
    if (what < 5 && text.size() < 64) {
      const uint32_t count = 1 + below(std::min<size_t>(6, 64 - text.size()));
      const PageCount needed = table_.needed(sequence, count), free = table_.free();
      if (needed.global > free.global || needed.sliding > free.sliding) continue;
      std::vector<Row> rows;
      for (uint32_t i = 0; i < count; ++i) {
        rows.push_back({static_cast<int32_t>(below(3)), static_cast<uint32_t>(text.size()) + i, sequence, false});
      }
      for (const PageCopy& copy : table_.begin(rows)) memory[{copy.kind, copy.to}] = memory[{copy.kind, copy.from}];
      EXPECT_LE(free.sliding - std::min(free.sliding, table_.free().sliding), needed.sliding);
      for (const Row& row : rows) {
        text.push_back(row.token);
        for (const PageKind kind : model::kPageKinds) {
          memory[{kind, table_.page(kind, sequence, row.position)}][row.position % kPage] = text;
        }
      }
      if (below(20) > 0) {
        table_.commit(rows);
      } else {
        text.resize(text.size() - count);  // the pass failed
      }
    } else if (what == 5 && !text.empty()) {
      const uint32_t n = below(text.size() + 1);
      text.resize(table_.truncate(sequence, n));
    } else if (what == 6 && !text.empty()) {
      const uint32_t n = 1 + below(text.size());
      if (const auto id = table_.keep(sequence, n)) kept.push_back({*id, Text(text.begin(), text.begin() + n)});
    } else if (what == 7 && text.empty() && !kept.empty()) {
      const Kept& from = kept[below(kept.size())];
      table_.resume(sequence, from.id);
      text = from.text;
      ++resumed;
    } else if (what == 8 && !kept.empty()) {
      const uint32_t i = below(kept.size());
      table_.drop(kept[i].id);
      kept.erase(kept.begin() + i);
    } else if (what == 9) {
      table_.trim();
    }
    table_.check_counts();
    for (uint32_t s = 0; s < kSequences; ++s) {
      const auto n = static_cast<uint32_t>(texts[s].size());
      ASSERT_EQ(table_.length(s), n);
      for (uint32_t p = 0; p < n; ++p) {
        const Text expected(texts[s].begin(), texts[s].begin() + p + 1);
        ASSERT_EQ((memory[{PageKind::kGlobal, table_.page(PageKind::kGlobal, s, p)}][p % kPage]), expected) << round;
        if (p < geometry_.first_needed(n)) continue;
        ASSERT_EQ((memory[{PageKind::kSliding, table_.page(PageKind::kSliding, s, p)}][p % kPage]), expected) << round;
      }
    }
  }
  EXPECT_GT(resumed, 50u);
}

}  // namespace
}  // namespace carat::exec
