// However rows are divided among passes, and whatever else is in a pass, their logits are the same.
#include <fmt/format.h>

#include <algorithm>

#include "exec/conformance/executor_conformance.h"
#include "exec/reference/reference_executor.h"
#include "support/logit_error.h"

namespace carat::exec {
namespace {

using test::feed;
using test::Logits;

TEST_P(ExecutorConformance, AgreesWithTheReference) {
  const auto text = tokens(std::min(under_test().prompt, 90u), 3);
  const Logits expected = feed(*make_reference_executor(model_, default_options()), 0, text, 128);
  for (const uint32_t rows : {90u, 33u, 5u, 1u}) {
    const double error = test::relative_error(feed(*make(), 0, text, rows), expected);
    EXPECT_LE(error, under_test().from_reference(kind(), rows)) << "passes of " << rows;
    RecordProperty(fmt::format("error_{}", rows), fmt::format("{:.2e}", error));
  }
}

TEST_P(ExecutorConformance, SizesOfPassesDoNotMatter) {
  const auto text = tokens(under_test().prompt, 5);
  const Logits whole = feed(*make(), 0, text, 100);
  ASSERT_EQ(whole.size(), text.size());
  for (const uint32_t rows : under_test().pass_sizes) {
    expect_same(feed(*make(), 0, text, rows), whole, fmt::format("passes of {}", rows));
  }
}

// Rings are as short as the largest pass allows.
TEST_P(ExecutorConformance, TheSmallestCachesAreLargeEnough) {
  const auto text = tokens(45, 1);
  const Logits whole = feed(*make(), 0, text, 45);
  for (const uint32_t rows : {1u, 3u, 7u, 8u, 20u}) {
    ExecutorOptions options = default_options();
    options.sequences = 1;
    options.chunk = rows;
    expect_same(feed(*make(options), 0, text, rows), whole, fmt::format("chunks of {}", rows));
  }
}

// Few rows that want logits may go on in another way after the last layer that owns keys and values than many do.
TEST_P(ExecutorConformance, TheShortcutOfRowsWithoutLogitsDoesNotMatter) {
  const auto text = tokens(std::min(under_test().prompt, 120u), 9);
  ExecutorOptions full = default_options();
  full.kv_share_shortcut = false;
  for (const uint32_t rows : {120u, 20u, 7u}) {
    for (const size_t wanted : {size_t{1}, size_t{3}, size_t{20}, text.size()}) {
      const Logits with = feed(*make(), 0, text, rows, text.size() - wanted);
      EXPECT_EQ(with.size(), wanted);
      expect_same(with, feed(*make(full), 0, text, rows, text.size() - wanted),
                  fmt::format("{} outputs, passes of {}", wanted, rows));
    }
  }
}

TEST_P(ExecutorConformance, APassMayWantNoLogits) {
  const auto text = tokens(45, 2);
  const Logits expected = feed(*make(), 0, text, 64, 40);
  for (const bool shortcut : {true, false}) {
    ExecutorOptions options = default_options();
    options.kv_share_shortcut = shortcut;
    const auto executor = make(options);
    EXPECT_TRUE(feed(*executor, 0, std::span(text).first(40), 40, 40).empty());
    EXPECT_EQ(executor->outputs(), 0u);
    EXPECT_EQ(executor->length(0), 40u);
    expect_same(feed(*executor, 0, std::span(text).subspan(40), 5), expected, "what follows");
  }
}

TEST_P(ExecutorConformance, NeighboursInAPassDoNotMatter) {
  const auto a = tokens(30, 3), b = tokens(17, 4), c = tokens(1, 5);
  const Logits alone[] = {feed(*make(), 0, a, 64), feed(*make(), 0, c, 64), feed(*make(), 0, b, 64)};
  const auto executor = make();
  feed(*executor, 0, std::span(a).first(10), 64);  // the sequences are of different age
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 20; ++i) {
    rows.push_back({a[10 + i], 10 + i, 0, i % 2 == 0});
    if (i < 17) rows.push_back({b[i], i, 2, true});
    if (i == 5) rows.push_back({c[0], 0, 1, true});
  }
  executor->forward(rows);
  Logits expected;
  for (const Row& row : rows) {
    if (row.wants_logits) expected.push_back(alone[row.sequence][row.position]);
  }
  EXPECT_EQ(executor->outputs(), expected.size());
  expect_same(test::copy_outputs(*executor), expected, "rows of three sequences");
}

// Passes that mix the sequences in varying amounts, small and large.
TEST_P(ExecutorConformance, RaggedPassesEqualSequencesRunAlone) {
  std::vector<std::vector<int32_t>> texts;
  std::vector<Logits> alone;
  size_t left = 0;
  for (uint32_t s = 0; s < 3; ++s) {
    texts.push_back(tokens(40 + 13 * s, 20 + s));
    alone.push_back(feed(*make(), 0, texts.back(), 16));
    left += texts.back().size();
  }
  const auto executor = make();
  std::vector<uint32_t> done(3, 0);
  std::vector<Logits> mixed(3);
  for (uint32_t step = 0; left > 0; ++step) {
    std::vector<Row> rows;
    for (uint32_t s = 0; s < 3; ++s) {
      const uint32_t take = (step * 7 + s * 5) % (step % 2 == 0 ? 3 : 17);
      for (uint32_t i = 0; i < take && done[s] < texts[s].size(); ++i, ++done[s]) {
        rows.push_back({texts[s][done[s]], done[s], s, true});
      }
    }
    if (rows.empty()) continue;
    executor->forward(rows);
    left -= rows.size();
    for (uint32_t r = 0; r < rows.size(); ++r) {
      const auto logits = executor->logits(r);
      mixed[rows[r].sequence].emplace_back(logits.begin(), logits.end());
    }
  }
  for (uint32_t s = 0; s < 3; ++s) expect_same(mixed[s], alone[s], fmt::format("sequence {}", s));
}

TEST_P(ExecutorConformance, StartAndFinishAreAPass) {
  const auto text = tokens(45, 6);
  const Logits expected = feed(*make(), 0, text, 20);
  const auto executor = make();
  Logits found;
  for (uint32_t first = 0; first < text.size(); first += 20) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < std::min<size_t>(first + 20, text.size()); ++i) rows.push_back({text[i], i, 0, true});
    executor->start(rows);
    executor->finish();
    for (auto& logits : test::copy_outputs(*executor)) found.push_back(std::move(logits));
  }
  EXPECT_EQ(executor->length(0), text.size());
  expect_identical(found, expected, "passes in two parts");
}

TEST_P(ExecutorConformance, ThreadsDoNotMatter) {
  const auto text = tokens(20, 8);
  const Logits one = feed(*make(), 0, text, 20);
  for (const unsigned threads : {2u, 3u, 5u}) {
    ExecutorOptions options = default_options();
    options.threads = threads;
    expect_identical(feed(*make(options), 0, text, 20), one, fmt::format("{} threads", threads));
  }
}

}  // namespace
}  // namespace carat::exec
