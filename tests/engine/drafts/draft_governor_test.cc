#include "engine/drafts/draft_governor.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "support/random.h"

namespace carat::engine {
namespace {

constexpr uint32_t kMatch = 4;

// One sequence that is always offered drafts, on a machine where a pass of r rows takes cost(r), with a clock that is
// only added up.
class Simulation {
 public:
  explicit Simulation(std::function<double(uint32_t)> cost_of, DraftMode mode = DraftMode::kAuto)
      : cost(std::move(cost_of)), governor_(mode, 7) {}

  // Passes until so many tokens are made, of which every draft has the first `right` tokens right.
  void make(uint32_t tokens, uint32_t right) {
    for (uint32_t made = 0; made < tokens;) {
      const DraftGovernor::Offer offer{&acceptance_, kMatch, 7};
      const uint32_t drafted = governor_.choose({&offer, 1}, 1, 7);
      const uint32_t yield = 1 + std::min(right, drafted);
      const double time = cost(1 + drafted);
      governor_.record({1, 1 + drafted, yield, time});
      const uint32_t tested = std::max(1u, std::min(yield, drafted));
      acceptance_.record(kMatch, tested, std::min(right, tested));
      made += yield;
      seconds += time;
      plain_seconds += yield * cost(1);
      passes_with_drafts += drafted > 0 ? 1 : 0;
      longest = std::max(longest, drafted);
    }
  }

  std::function<double(uint32_t)> cost;
  double seconds = 0.0;
  double plain_seconds = 0.0;
  uint32_t passes_with_drafts = 0;
  uint32_t longest = 0;

 private:
  DraftGovernor governor_;
  DraftAcceptance acceptance_;
};

double nearly_free(uint32_t rows) { return 1.0 + 0.02 * (rows - 1); }
double costly(uint32_t rows) { return 1.0 + 0.5 * (rows - 1); }
double proportional(uint32_t rows) { return rows; }

TEST(DraftGovernor, OffAndOnDoNotMeasure) {
  Simulation off(nearly_free, DraftMode::kOff), on(proportional, DraftMode::kOn);
  off.make(100, 7);
  EXPECT_EQ(off.passes_with_drafts, 0u);
  on.make(100, 0);
  EXPECT_EQ(on.passes_with_drafts, 100u);
  EXPECT_EQ(on.longest, 7u);
}

TEST(DraftGovernor, DraftsWhereItPays) {
  Simulation echo(nearly_free);
  echo.make(2000, 7);
  EXPECT_EQ(echo.longest, 7u);
  EXPECT_LT(echo.seconds, 0.2 * echo.plain_seconds);
}

TEST(DraftGovernor, FindsTheLengthThatPays) {
  // Two of a draft are always right, the third never: three rows more than two cost more than they bring.
  Simulation some([](uint32_t rows) { return rows <= 4 ? 1.1 : 3.0; });
  some.make(2000, 2);
  EXPECT_LT(some.seconds, 0.45 * some.plain_seconds);
}

TEST(DraftGovernor, NeverLosesMuch) {
  for (const auto& cost : {nearly_free, costly, proportional}) {
    for (const uint32_t right : {0u, 1u, 7u}) {
      Simulation simulation(cost);
      simulation.make(20000, right);
      EXPECT_LT(simulation.seconds, 1.012 * simulation.plain_seconds)
          << "8 rows cost " << cost(8) << ", right " << right << ", drafts " << simulation.passes_with_drafts;
    }
  }
}

TEST(DraftGovernor, WhatWasWonIsNotSpent) {
  Simulation simulation(costly);
  simulation.make(5000, 7);
  EXPECT_LT(simulation.seconds, 0.8 * simulation.plain_seconds);
  const double seconds = simulation.seconds, plain = simulation.plain_seconds;
  simulation.make(5000, 0);
  EXPECT_LT(simulation.seconds - seconds, 1.015 * (simulation.plain_seconds - plain));
}

TEST(DraftGovernor, SwitchesOnAgainWhenTheTextRepeatsItself) {
  Simulation simulation(nearly_free);
  simulation.make(3000, 0);
  const uint32_t before = simulation.passes_with_drafts;
  const double seconds = simulation.seconds, plain = simulation.plain_seconds;
  simulation.make(1000, 7);
  EXPECT_GT(simulation.passes_with_drafts, before + 100);
  EXPECT_LT(simulation.seconds - seconds, 0.3 * (simulation.plain_seconds - plain));
}

TEST(DraftGovernor, NoticesThatTheMachineHasChanged) {
  Simulation simulation(proportional);
  simulation.make(2000, 7);
  EXPECT_LT(simulation.passes_with_drafts, 100u);
  simulation.cost = nearly_free;
  const double seconds = simulation.seconds, plain = simulation.plain_seconds;
  simulation.make(8000, 7);
  EXPECT_LT(simulation.seconds - seconds, 0.4 * (simulation.plain_seconds - plain));
}

// Every eighth pass or so is held up by something else, for several passes' time.
std::function<double(uint32_t)> held_up(double (*cost)(uint32_t)) {
  return [cost, random = test::Random(3)](uint32_t rows) mutable {
    return cost(rows) * random.uniform(0.9f, 1.1f) + (random.below(8) == 0 ? 5.0 : 0.0);
  };
}

TEST(DraftGovernor, ABusyMachineDoesNotMatter) {
  Simulation echo(held_up(nearly_free));
  echo.make(4000, 7);
  EXPECT_GT(echo.passes_with_drafts, 400u);
  for (double (*cost)(uint32_t) : {nearly_free, proportional}) {
    Simulation noise(held_up(cost));
    noise.make(20000, 0);
    EXPECT_LT(noise.seconds, 1.03 * noise.plain_seconds);
  }
}

TEST(DraftGovernor, KeepsWithinTheRowsOfAPass) {
  DraftAcceptance acceptance;
  const DraftGovernor::Offer offers[] = {{&acceptance, kMatch, 7}, {&acceptance, kMatch, 2}};
  const DraftGovernor governor(DraftMode::kOn, 7);
  EXPECT_EQ(governor.choose(offers, 2, 9), 7u);
  EXPECT_EQ(governor.choose(offers, 2, 8), 6u);
  EXPECT_EQ(governor.choose(offers, 2, 2), 1u);
  EXPECT_EQ(governor.choose(offers, 2, 1), 0u);
  EXPECT_EQ(governor.choose({}, 2, 9), 0u);
}

TEST(DraftAcceptance, ForgetsSlowlyAndTellsLengthsApart) {
  DraftAcceptance acceptance;
  EXPECT_DOUBLE_EQ(acceptance.rate(3), 0.5);
  EXPECT_DOUBLE_EQ(acceptance.expected(3, 2), 0.75);
  for (int i = 0; i < 50; ++i) acceptance.record(3, 7, 7);
  EXPECT_GT(acceptance.rate(3), 0.99);
  EXPECT_DOUBLE_EQ(acceptance.rate(2), 0.5);
  for (int i = 0; i < 50; ++i) acceptance.record(3, 1, 0);
  EXPECT_LT(acceptance.rate(3), 0.05);
}

TEST(DraftOptions, AreChecked) {
  EXPECT_EQ(parse_draft_mode("auto"), DraftMode::kAuto);
  EXPECT_EQ(parse_draft_mode("on"), DraftMode::kOn);
  EXPECT_EQ(parse_draft_mode("off"), DraftMode::kOff);
  EXPECT_THROW(parse_draft_mode("maybe"), Error);
  DraftOptions options;
  EXPECT_NO_THROW(options.check());
  options.max_ngram = 1;
  EXPECT_THROW(options.check(), Error);
  options.max_ngram = 17;
  EXPECT_THROW(options.check(), Error);
  options = {};
  options.max_draft = 0;
  EXPECT_THROW(options.check(), Error);
  options.max_draft = 64;
  EXPECT_THROW(options.check(), Error);
}

}  // namespace
}  // namespace carat::engine
