#include "exec/sequence_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/random.h"

namespace carat::exec {
namespace {

// One sliding layer with a window of 8, one global layer, 100 tokens.
model::Config small_config() {
  model::Config config;
  config.name = "small";
  config.V = 100;
  config.W = 8;
  config.L = config.n_kv = 2;
  for (uint32_t i = 0; i < 2; ++i) {
    model::Layer layer;
    layer.index = layer.kv_source = i;
    layer.sliding = i == 0;
    layer.H = layer.Hkv = 1;
    layer.hd = 16;
    config.layers.push_back(layer);
  }
  return config;
}

ExecutorOptions small_options() {
  ExecutorOptions options;
  options.context = 40;
  options.sequences = 3;
  options.chunk = 6;
  options.outputs = 2;
  return options;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

class SequenceTableTest : public testing::Test {
 protected:
  std::string refusal(const std::vector<Row>& rows) {
    return error_of([&] { table_.check(rows); });
  }

  // A pass that appends `count` rows to a sequence; it fails after the cache was written unless `succeeds`.
  void append(uint32_t sequence, uint32_t count, bool succeeds = true) {
    std::vector<Row> rows;
    for (uint32_t i = 0; i < count; ++i) rows.push_back({5, table_.length(sequence) + i, sequence, false});
    table_.check(rows);
    table_.begin(rows);
    if (succeeds) table_.commit(rows);
  }

  SequenceTable table_{small_config(), small_options()};
};

TEST_F(SequenceTableTest, RowsOfMixedSequencesAreAccepted) {
  append(1, 3);
  EXPECT_EQ(table_.length(0), 0u);
  EXPECT_EQ(table_.length(1), 3u);
  const std::vector<Row> rows = {
      {1, 0, 0, false}, {2, 3, 1, true}, {3, 1, 0, true}, {0, 4, 1, false}, {99, 0, 2, false}};
  table_.check(rows);
  table_.begin(rows);
  table_.commit(rows);
  EXPECT_EQ(table_.length(0), 2u);
  EXPECT_EQ(table_.length(1), 5u);
  EXPECT_EQ(table_.length(2), 1u);
}

TEST_F(SequenceTableTest, BrokenRulesAreNamed) {
  EXPECT_THAT(refusal({}), testing::HasSubstr("at least one row"));
  EXPECT_THAT(refusal(std::vector<Row>(7, Row{0, 0, 0, false})), testing::HasSubstr("at most 6"));
  EXPECT_THAT(refusal({{1, 0, 3, false}}), testing::HasSubstr("sequence 3"));
  EXPECT_THAT(refusal({{-1, 0, 0, false}}), testing::HasSubstr("token -1"));
  EXPECT_THAT(refusal({{100, 0, 0, false}}), testing::HasSubstr("token 100"));
  EXPECT_THAT(refusal({{1, 1, 0, false}}), testing::HasSubstr("goes on at 0"));
  EXPECT_THAT(refusal({{1, 0, 0, false}, {1, 0, 0, false}}), testing::HasSubstr("goes on at 1"));
  EXPECT_THAT(refusal({{1, 1, 0, false}, {1, 0, 0, false}}), testing::HasSubstr("position 1"));
  EXPECT_THAT(refusal({{1, 0, 0, true}, {1, 1, 0, true}, {1, 2, 0, true}}), testing::HasSubstr("3 rows"));
  EXPECT_EQ(table_.length(0), 0u);
}

TEST_F(SequenceTableTest, TheContextIsTheEnd) {
  for (int i = 0; i < 6; ++i) append(0, 6);
  append(0, 4);
  EXPECT_EQ(table_.length(0), 40u);
  EXPECT_THAT(refusal({{1, 40, 0, false}}), testing::HasSubstr("the context holds 40"));
}

TEST_F(SequenceTableTest, UnknownSequencesAreRefused) {
  EXPECT_THAT(error_of([&] { table_.length(3); }), testing::HasSubstr("no sequence 3"));
  EXPECT_THAT(error_of([&] { table_.truncate(3, 0); }), testing::HasSubstr("no sequence 3"));
  EXPECT_THAT(error_of([&] { table_.truncate(0, 1); }), testing::HasSubstr("holds 0"));
}

TEST_F(SequenceTableTest, TruncateKeepsWhatTheWindowNeeds) {
  for (int i = 0; i < 5; ++i) append(0, 6);  // 30 positions; the ring of 13 cells holds 17..29
  EXPECT_EQ(table_.truncate(0, 30), 30u);
  EXPECT_EQ(table_.resumable(0, 24), 24u);
  EXPECT_EQ(table_.resumable(0, 23), 0u);
  EXPECT_EQ(table_.length(0), 30u);        // nothing was done
  EXPECT_EQ(table_.truncate(0, 24), 24u);  // needs 17..23
  EXPECT_EQ(table_.length(0), 24u);
  EXPECT_EQ(table_.truncate(0, 23), 0u);  // 16 was overwritten by 29, although the sequence is shorter now
  EXPECT_EQ(table_.length(0), 0u);
}

// What speculation relies on: however often rows were taken back or passes failed before, those of the last pass can
// be.
TEST_F(SequenceTableTest, RowsOfTheLastPassCanAlwaysBeTakenBack) {
  test::Random random(1);
  for (int round = 0; round < 200; ++round) {
    table_.truncate(0, 0);
    while (table_.length(0) + 6 <= 40) {
      const uint32_t before = table_.length(0);
      const auto rows = static_cast<uint32_t>(random.between(1, 6));
      if (random.below(4) == 0) append(0, static_cast<uint32_t>(random.between(1, 6)), false);
      append(0, rows);
      const auto kept = static_cast<uint32_t>(random.between(before, before + rows));
      if (kept == 0) continue;
      ASSERT_EQ(table_.truncate(0, kept), kept) << "of " << before << " + " << rows;
    }
  }
}

TEST_F(SequenceTableTest, AnEmptiedSequenceStartsAfresh) {
  for (int i = 0; i < 5; ++i) append(0, 6);
  EXPECT_EQ(table_.truncate(0, 0), 0u);
  append(0, 6);
  append(0, 6);
  EXPECT_EQ(table_.truncate(0, 1), 1u);  // twelve positions fit the ring
}

TEST_F(SequenceTableTest, AFailedPassKeepsTheLengthButNotTheOldestPositions) {
  append(0, 6);
  append(0, 6);
  append(0, 6, false);
  EXPECT_EQ(table_.length(0), 12u);
  // Position 4 was overwritten by 17, so 12 (which needs 5..11) can go on and 11 cannot.
  EXPECT_EQ(table_.truncate(0, 12), 12u);
  append(0, 6);
  EXPECT_EQ(table_.truncate(0, 12), 12u);
  EXPECT_EQ(table_.truncate(0, 11), 0u);
}

TEST(SequenceTable, SenselessOptionsAreRefused) {
  const auto refusal = [](const std::function<void(ExecutorOptions&)>& change) {
    ExecutorOptions options = small_options();
    change(options);
    return error_of([&] { SequenceTable(small_config(), options); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.context = 0; }), testing::HasSubstr("context"));
  EXPECT_THAT(refusal([](auto& o) { o.context = 0xffffffff; }), testing::HasSubstr("context"));
  EXPECT_THAT(refusal([](auto& o) { o.sequences = 0; }), testing::HasSubstr("sequences"));
  EXPECT_THAT(refusal([](auto& o) { o.sequences = 0xffffffff; }), testing::HasSubstr("sequences"));
  EXPECT_THAT(refusal([](auto& o) { o.chunk = 0; }), testing::HasSubstr("rows"));
  EXPECT_THAT(refusal([](auto& o) { o.outputs = 0; }), testing::HasSubstr("outputs"));
}

TEST(SequenceTable, ADrafterCannotRun) {
  model::Config config = small_config();
  config.d_target = 64;
  EXPECT_THAT(error_of([&] { SequenceTable(config, small_options()); }), testing::HasSubstr("\"small\" is a drafter"));
}

}  // namespace
}  // namespace carat::exec
