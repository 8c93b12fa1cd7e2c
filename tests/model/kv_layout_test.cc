#include "model/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace carat::model {
namespace {

// Layers S S G | S G with the last two sharing; W = 8.
Config small_config() {
  Config config;
  config.L = 5;
  config.W = 8;
  config.n_kv = 3;
  for (uint32_t i = 0; i < config.L; ++i) {
    Layer layer;
    layer.index = i;
    layer.sliding = i != 2 && i != 4;
    layer.H = 4;
    layer.Hkv = layer.sliding ? 2 : 1;
    layer.hd = layer.sliding ? 16 : 32;
    layer.owns_kv = i < config.n_kv;
    layer.kv_source = layer.owns_kv ? i : layer.sliding ? 1 : 2;
    config.layers.push_back(layer);
  }
  return config;
}

TEST(KvLayout, GroupsOwnersByShape) {
  const KvLayout layout(small_config(), 100, 4);
  ASSERT_EQ(layout.groups().size(), 2u);
  EXPECT_TRUE(layout.groups()[0].sliding);
  EXPECT_EQ(layout.groups()[0].slots, 7u + 4u);
  EXPECT_THAT(layout.groups()[0].layers, testing::ElementsAre(0, 1));
  EXPECT_EQ(layout.groups()[0].values_per_slot(), 64u);
  EXPECT_FALSE(layout.groups()[1].sliding);
  EXPECT_EQ(layout.groups()[1].slots, 100u);
  EXPECT_THAT(layout.groups()[1].layers, testing::ElementsAre(2));
  EXPECT_EQ(layout.slots(3), 0u);
  EXPECT_EQ(layout.slots(4), 0u);
}

TEST(KvLayout, SlotsWrapInSlidingLayersOnly) {
  const KvLayout layout(small_config(), 100, 4);
  EXPECT_EQ(layout.slot(0, 10), 10u);
  EXPECT_EQ(layout.slot(0, 11), 0u);
  EXPECT_EQ(layout.slot(2, 99), 99u);
}

TEST(KvLayout, CountsBytes) {
  const KvLayout layout(small_config(), 100, 4);
  const uint64_t values = 2 * 11 * 64 + 100 * 64;  // two sliding layers, one global
  EXPECT_EQ(layout.bytes(2.0), 2 * values);
  EXPECT_EQ(layout.bytes(1.0625), values + values / 16);
}

TEST(KvLayout, AShortContextNeedsNoRing) {
  const KvLayout layout(small_config(), 6, 4);
  EXPECT_EQ(layout.slots(0), 6u);
  for (uint32_t written = 0; written <= 6; ++written) {
    for (uint32_t n = 0; n <= written; ++n) EXPECT_TRUE(layout.can_resume(n, written)) << n << " of " << written;
  }
}

TEST(KvLayout, AHugeWindowOrChunkDoesNotOverflow) {
  Config config = small_config();
  config.W = kMaxPositions;
  EXPECT_EQ(KvLayout(config, 1000, 0xffffffff).slots(0), 1000u);
}

TEST(KvLayout, CanResumeAtTheEdges) {
  const KvLayout layout(small_config(), 1000, 4);  // ring of 11, window needs 7 positions before n
  EXPECT_FALSE(layout.can_resume(21, 20));
  EXPECT_TRUE(layout.can_resume(20, 20));
  EXPECT_TRUE(layout.can_resume(16, 20));   // needs 9..15; 8 is the last that was overwritten
  EXPECT_FALSE(layout.can_resume(15, 20));  // needs 8..14
  EXPECT_FALSE(layout.can_resume(1, 20));
  EXPECT_TRUE(layout.can_resume(0, 20));   // needs nothing
  EXPECT_TRUE(layout.can_resume(1, 11));   // nothing overwritten yet
  EXPECT_FALSE(layout.can_resume(1, 12));  // position 0 is gone
}

TEST(KvLayout, AWindowOfOneNeedsNoHistory) {
  Config config = small_config();
  config.W = 1;
  const KvLayout layout(config, 1000, 4);
  EXPECT_EQ(layout.slots(0), 4u);
  for (uint32_t n = 0; n <= 50; ++n) EXPECT_TRUE(layout.can_resume(n, 50)) << n;
}

// can_resume against a simulated ring that remembers which position each slot holds.
TEST(KvLayout, CanResumeAgreesWithASimulatedRing) {
  for (uint32_t chunk = 1; chunk <= 5; ++chunk) {
    const Config config = small_config();
    const KvLayout layout(config, 64, chunk);
    std::vector<uint32_t> ring(layout.slots(0), 0xffffffff);
    for (uint32_t written = 0; written <= 64; ++written) {
      for (uint32_t n = 0; n <= written; ++n) {
        bool kept = true;
        for (uint32_t p = n >= config.W ? n - config.W + 1 : 0; p < n; ++p) kept &= ring[layout.slot(0, p)] == p;
        EXPECT_EQ(layout.can_resume(n, written), kept) << n << " of " << written << ", chunk " << chunk;
      }
      if (written < 64) ring[layout.slot(0, written)] = written;
    }
  }
}

}  // namespace
}  // namespace carat::model
