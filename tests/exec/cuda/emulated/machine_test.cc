// The emulated machine itself: what it must notice, and what it may do in any order.
#include "exec/cuda/emulated/machine.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace carat::cuda::emulated {
namespace {

constexpr Grid kOneWarp{.blocks = 1, .threads = 32, .cluster = 1, .shared_bytes = 1024};

std::string complaint(const Grid& grid, const std::function<void()>& kernel) {
  try {
    run(grid, 1, kernel);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(EmulatedMachine, TellsWhoWaitsForEver) {
  const std::string text = complaint({1, 64, 1, 0}, [] {
    if (thread_index().x != 40) block_barrier(2, 64);
  });
  EXPECT_NE(text.find("63 for a barrier of the block, thread 0 of block 0 first"), std::string::npos) << text;
}

TEST(EmulatedMachine, TellsWhoAsksForEver) {
  uint32_t never = 0;
  const std::string text = complaint(kOneWarp, [&] {
    while (never == 0) pause("what nobody writes");
  });
  EXPECT_NE(text.find("32 for what nobody writes"), std::string::npos) << text;
}

TEST(EmulatedMachine, RefusesWhatTheHardwareDoes) {
  alignas(16) const uint8_t from[64] = {};
  const auto copy = [&](uint32_t destination, const uint8_t* source, uint32_t bytes) {
    return complaint(kOneWarp, [=] {
      barrier_initialise(kFirstShared, 1);
      start_bulk_copy(destination, source, bytes, kFirstShared);
    });
  };
  EXPECT_NE(copy(kFirstShared + 24, from, 16), "");
  EXPECT_NE(copy(kFirstShared + 16, from + 8, 16), "");
  EXPECT_NE(copy(kFirstShared + 16, from, 24), "");
  EXPECT_NE(copy(kFirstShared + 1008, from, 32), "") << "beyond the block's memory";
  EXPECT_NE(complaint(kOneWarp,
                      [] {
                        if (thread_index().x == 0) barrier_initialise(kFirstShared, 2);
                        meet({});
                        barrier_count_arrival(kFirstShared, 0, 3);
                      }),
            "");
}

// A copy is there when the barrier says so, and not always before.
TEST(EmulatedMachine, CopiesComeWhenTheyAreWaitedFor) {
  alignas(16) const uint32_t from[4] = {1, 2, 3, 4};
  std::set<uint32_t> seen_early;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    run({1, 32, 1, 64}, seed, [&] {
      const uint32_t barrier = kFirstShared, to = kFirstShared + 16;
      if (thread_index().x == 0) {
        barrier_initialise(barrier, 1);
        barrier_announce_bytes(barrier, 16);
        start_bulk_copy(to, from, 16, barrier);
        barrier_count_arrival(barrier, 0);
        seen_early.insert(*reinterpret_cast<const uint32_t*>(shared_at(to, 4)));
        barrier_wait_for_phase(barrier, 0);
        EXPECT_EQ(*reinterpret_cast<const uint32_t*>(shared_at(to, 4)), 1u);
      }
    });
  }
  EXPECT_EQ(seen_early.size(), 2u) << "sometimes there, sometimes not";
}

// A thread's own copies come in groups; the newest may still be under way.
TEST(EmulatedMachine, OwnCopiesComeGroupByGroup) {
  alignas(16) const uint32_t from[4] = {1, 2, 3, 4};
  std::set<uint32_t> first_early, second_early;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    run({1, 32, 1, 64}, seed, [&] {
      if (thread_index().x != 0) return;
      const auto word = [](uint32_t address) { return *reinterpret_cast<const uint32_t*>(shared_at(address, 4)); };
      const uint32_t first = kFirstShared, second = kFirstShared + 16;
      start_own_copy(first, from, 16);
      commit_own_copies();
      start_own_copy(second, nullptr, 8);
      commit_own_copies();
      first_early.insert(word(first));
      wait_for_own_copies(1);
      EXPECT_EQ(word(first), 1u);
      second_early.insert(word(second));
      wait_for_own_copies(0);
      EXPECT_EQ(word(second), 0u) << "zeros, where there is no source";
    });
  }
  EXPECT_EQ(first_early.size(), 2u) << "sometimes there, sometimes not";
  EXPECT_EQ(second_early.size(), 2u);
}

// What a block puts into the memory of another is there after the cluster's barrier, and not always before.
TEST(EmulatedMachine, StoresToOtherBlocksArriveAtTheBarrier) {
  std::set<uint32_t> early;
  for (uint32_t i = 0; i < 50; ++i) {
    launch_kernel(
        dim3(4), dim3(32), 64,
        [&] {
          auto* mine = reinterpret_cast<uint32_t*>(shared_at(kFirstShared, 4));
          if (thread_index().x == 0) *mine = 7;
          cluster_barrier_arrive();
          cluster_barrier_wait();
          const uint32_t other = block_index().x % 2 == 0 ? 1 : 0, value = block_index().x;
          if (thread_index().x == 0) {
            store_in_block(address_in_block(kFirstShared, other), &value, sizeof value);
            pause("nothing");
            early.insert(*mine);
          }
          cluster_barrier_arrive();
          cluster_barrier_wait();
          EXPECT_EQ(*mine, block_index().x ^ 1);
        },
        2);
  }
  EXPECT_EQ(early, (std::set<uint32_t>{0, 1, 2, 3, 7}));
  EXPECT_THROW(launch_kernel(
                   dim3(3), dim3(32), 0, [] {}, 2),
               std::runtime_error)
      << "not of whole clusters";
}

// A store to another block arrives, and a look that is not ordered may come before it.
TEST(EmulatedMachine, LooksMayFindWhatWasThereBefore) {
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    alignas(16) uint32_t word[4] = {7, 7, 7, 7};
    bool ordered_is_old = false;
    run({2, 32, 2, 0}, seed, [&] {
      const uint32_t value = 8;
      if (thread_index().x != 0) return;
      if (block_index().x == 0) return store_global(word, &value, sizeof value);
      uint32_t found = 0;
      do {
        pause("the store");
        load_global(word, &found, sizeof found, false);
      } while (found != 8);
      load_global(word, &found, sizeof found, true);
      seen.insert(found);
      load_global(word, &found, sizeof found, false);
      ordered_is_old = found != 8;
    });
    EXPECT_FALSE(ordered_is_old);
  }
  EXPECT_EQ(seen, (std::set<uint32_t>{7, 8}));
}

// Blocks of a launch that wait for those after them are not left alone; arrays are each block's own.
TEST(EmulatedMachine, BlocksThatWaitForOthersRunTogether) {
  std::vector<uint32_t> arrived(1, 0);
  launch_kernel(dim3(3, 2), dim3(32), 0, [&] {
    auto* mine = static_cast<uint32_t*>(block_array(1, sizeof(uint32_t)));
    if (thread_index().x != 0) return;
    *mine = block_index().x + 3 * block_index().y;
    ++arrived[0];
    note_progress();
    while (arrived[0] < 6) pause("the other blocks");
    EXPECT_EQ(*mine, block_index().x + 3 * block_index().y);
  });
  EXPECT_EQ(arrived[0], 6u);
}

}  // namespace
}  // namespace carat::cuda::emulated
