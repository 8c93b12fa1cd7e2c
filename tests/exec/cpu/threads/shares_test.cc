#include "exec/cpu/threads/shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace carat::exec::cpu {
namespace {

TEST(Shares, EveryItemIsDoneOnce) {
  for (const unsigned workers : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(workers);
    Shares shares(workers);
    for (const uint32_t count : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 1000u}) {
      std::vector<std::atomic<int>> done(count);
      for (int round = 0; round < 20; ++round) {
        shares.run(pool, count, [&](uint32_t item, unsigned worker) {
          EXPECT_LT(worker, workers);
          ++done[item];
        });
        for (uint32_t item = 0; item < count; ++item) {
          ASSERT_EQ(done[item], round + 1) << "item " << item << " of " << count << " on " << workers << " workers";
        }
      }
    }
  }
}

TEST(Shares, AWorkerGoesThroughItsShareInOrder) {
  constexpr uint32_t kCount = 200;
  ThreadPool pool(2);
  Shares shares(2);
  std::vector<uint32_t> items[2];
  shares.run(pool, kCount, [&](uint32_t item, unsigned worker) {
    items[worker].push_back(item);
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // so that both have some
  });
  // Runs of consecutive items: its own share and what it took over, which is halved every time.
  size_t runs = 0;
  for (const std::vector<uint32_t>& list : items) {
    for (size_t i = 0; i < list.size(); ++i) runs += i == 0 || list[i] != list[i - 1] + 1;
  }
  EXPECT_LE(runs, 24u);
  EXPECT_EQ(items[0].front(), 0u);
  if (items[1].size() >= kCount / 4) {  // unless it came so late that little was left
    EXPECT_EQ(items[1].front(), kCount / 2);
  }
}

TEST(Shares, WhoIsDoneTakesOverWhatAnotherHasLeft) {
  constexpr uint32_t kCount = 100;
  ThreadPool pool(2);
  Shares shares(2);
  std::atomic<uint32_t> done{0};
  std::atomic<bool> in_time{true};
  shares.run(pool, kCount, [&](uint32_t item, unsigned) {
    if (item == 0) {  // its worker does nothing more until all other items are done
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (done < kCount - 1 && in_time) {
        if (std::chrono::steady_clock::now() > deadline) in_time = false;
        std::this_thread::yield();
      }
    }
    ++done;
  });
  EXPECT_TRUE(in_time) << "the other worker left items alone";
  EXPECT_EQ(done, kCount);
}

}  // namespace
}  // namespace carat::exec::cpu
