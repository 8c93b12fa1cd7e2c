// What sequences hold after they were cut, after passes that were refused or interrupted, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "base/error.h"
#include "exec/conformance/executor_conformance.h"
#include "support/raised_error.h"

namespace carat::exec {
namespace {

using test::error_of;
using test::feed;
using test::Logits;

TEST_P(ExecutorConformance, TruncatedSequencesGoOnAsIfFresh) {
  const auto text = tokens(45, 6), other = tokens(20, 7);
  ExecutorOptions options = default_options();
  options.chunk = 6;  // the last pass begins at 42, and rings are short enough to lose positions
  const auto executor = make(options);
  for (const uint32_t n : {45u, 44u, 42u, 40u, 20u, 1u, 0u}) {
    executor->truncate(0, 0);
    feed(*executor, 0, text, 6);
    const uint32_t promised = executor->resumable(0, n);
    EXPECT_EQ(executor->length(0), 45u);
    EXPECT_EQ(executor->truncate(0, n), promised);
    EXPECT_EQ(executor->length(0), promised);
    EXPECT_TRUE(promised == n || (promised == 0 && n < 42)) << n;
    std::vector<int32_t> joined(text.begin(), text.begin() + promised);
    joined.insert(joined.end(), other.begin(), other.end());
    expect_same(feed(*executor, 0, other, 6), feed(*make(options), 0, joined, 6, promised),
                fmt::format("truncated to {}", n));
  }
}

// After a truncation the rest is computed again, in passes of another size.
TEST_P(ExecutorConformance, TruncatedRowsAreTheSameAgain) {
  const auto text = tokens(100, 41);
  const auto executor = make();
  const Logits whole = feed(*executor, 0, text, 50);
  const uint32_t kept = executor->truncate(0, 80);
  EXPECT_EQ(kept, 80u);  // the last pass began at 50
  EXPECT_EQ(executor->length(0), kept);
  expect_same(feed(*executor, 0, std::span(text).subspan(kept), 1), Logits(whole.begin() + kept, whole.end()),
              "row by row");
}

// What drafts rely on.
TEST_P(ExecutorConformance, RowsOfTheLastPassCanAlwaysBeTakenBack) {
  const auto text = tokens(47, 10);
  ExecutorOptions options = default_options();
  options.chunk = 6;
  const auto executor = make(options);
  const Logits whole = feed(*executor, 0, text, 6);
  for (uint32_t kept = 42; kept < text.size(); ++kept) {
    ASSERT_EQ(executor->truncate(0, kept), kept);
    expect_same(feed(*executor, 0, std::span(text).subspan(kept), 6), Logits(whole.begin() + kept, whole.end()),
                fmt::format("from {} on", kept));
  }
}

// Kept in the middle of a page, shared by two, written on by both and by whom it was kept from, who is then gone.
TEST_P(ExecutorConformance, KeptPrefixesGoOnAsIfFresh) {
  const auto text = tokens(150, 61);
  ExecutorOptions options = default_options();
  options.sequences = 3;
  const auto executor = make(options);
  KeptPrefixes* const prefixes = executor->prefixes();
  if (prefixes == nullptr) GTEST_SKIP() << "skipped: " << executor->name() << " keeps no prefixes";
  for (const uint32_t n : {1u, 63u, 64u, 65u, 100u}) {
    for (uint32_t sequence = 0; sequence < 3; ++sequence) executor->truncate(sequence, 0);
    feed(*executor, 0, std::span(text).first(n), 20);
    const auto prefix = prefixes->keep(0, n);
    ASSERT_TRUE(prefix) << n;
    prefixes->resume(1, *prefix);
    EXPECT_EQ(executor->length(1), n);
    for (const uint32_t sequence : {0u, 1u, 2u}) {
      if (sequence == 2) {
        executor->truncate(0, 0);
        feed(*executor, 0, tokens(80, 63), 20);  // takes pages that were free
        prefixes->resume(2, *prefix);
        prefixes->drop(*prefix);
      }
      const auto other = tokens(30, 70 + sequence);
      std::vector<int32_t> joined(text.begin(), text.begin() + n);
      joined.insert(joined.end(), other.begin(), other.end());
      expect_same(feed(*executor, sequence, other, 7), feed(*make(options), 0, joined, 7, n),
                  fmt::format("sequence {} from {} on", sequence, n));
    }
  }
  for (uint32_t sequence = 0; sequence < 3; ++sequence) executor->truncate(sequence, 0);
  EXPECT_EQ(prefixes->free(), prefixes->total());
}

// A context is a limit: many sequences may be open as long as what they hold fits.
TEST_P(ExecutorConformance, ACacheSmallerThanAllContextsIsSharedByNeed) {
  ExecutorOptions options = default_options();
  options.sequences = 3;
  options.context = 256;
  options.cache_positions = 320;
  const auto executor = make(options);
  const KeptPrefixes* const prefixes = executor->prefixes();
  if (prefixes == nullptr) GTEST_SKIP() << "skipped: " << executor->name() << " keeps no prefixes";
  const uint32_t pages = prefixes->total().global;
  EXPECT_LT(pages, 3 * 256 / prefixes->page_positions());
  const auto text = tokens(256, 64);
  const Logits whole = feed(*make(options), 0, text, 20);
  expect_same(feed(*executor, 0, text, 20), whole, "the longest sequence");
  feed(*executor, 1, std::span(text).first(64), 20);
  const std::vector<int32_t> more(text.begin(), text.begin() + 80);
  const auto error = error_of([&] { feed(*executor, 2, more, 20); });
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(error.message, testing::HasSubstr("pages of the cache"));
  executor->truncate(0, 128);
  executor->truncate(2, 0);
  expect_same(feed(*executor, 2, more, 20), Logits(whole.begin(), whole.begin() + 80), "after another gave way");
}

TEST_P(ExecutorConformance, AnInterruptedPassChangesNothing) {
  const auto text = tokens(60, 51);
  const Logits expected = feed(*make(), 0, text, 20);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = default_options();
  options.cancelled = &cancelled;
  const auto executor = make(options);
  Logits found = feed(*executor, 0, std::span(text).first(40), 20);
  cancelled = true;
  EXPECT_EQ(error_of([&] { feed(*executor, 0, std::span(text).subspan(40), 20); }).code, ErrorCode::kInterrupted);
  EXPECT_EQ(executor->length(0), 40u);
  EXPECT_EQ(executor->outputs(), 0u);
  cancelled = false;
  for (auto& logits : feed(*executor, 0, std::span(text).subspan(40), 20)) found.push_back(std::move(logits));
  expect_identical(found, expected, "the pass again");
}

TEST_P(ExecutorConformance, BadRowsChangeNothing) {
  const auto executor = make();
  const Logits before = feed(*executor, 0, tokens(5, 1), 5);
  const std::vector<Row> gap = {{1, 6, 0, true}}, stranger = {{1, 0, 3, true}},
                         unknown = {{static_cast<int32_t>(model_->config().V), 5, 0, true}};
  for (const auto& rows : {gap, stranger, unknown, std::vector<Row>()}) {
    EXPECT_EQ(error_of([&] { executor->forward(rows); }).code, ErrorCode::kBadArgument);
    EXPECT_EQ(executor->length(0), 5u);
    EXPECT_EQ(test::copy_outputs(*executor), before);
  }
}

TEST_P(ExecutorConformance, AnImpossibleCacheIsRefusedWithItsSize) {
  ExecutorOptions options = default_options();
  options.context = model::kMaxPositions;
  options.sequences = 1024;
  const auto error = error_of([&] { make(options); });
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(error.message, testing::ContainsRegex("[0-9]+ (MiB|bytes)"));
}

TEST_P(ExecutorConformance, ADrafterIsRefused) {
  const auto drafter = test::load_draft(test::tiny_drafter_draft(shape()));
  const auto error = error_of([&] { make(drafter, default_options()); });
  EXPECT_EQ(error.code, ErrorCode::kBadArgument);
  EXPECT_THAT(error.message, testing::HasSubstr("is a drafter"));
}

}  // namespace
}  // namespace carat::exec
