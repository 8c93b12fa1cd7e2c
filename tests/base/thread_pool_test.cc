#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace carat {
namespace {

TEST(ThreadPool, RunCallsEachWorkerOnceInItsOwnThread) {
  for (const unsigned workers : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(workers);
    EXPECT_EQ(pool.size(), workers);
    std::mutex mutex;
    std::vector<int> calls(workers, 0);
    std::set<std::thread::id> threads;
    pool.run([&](unsigned worker) {
      const std::lock_guard lock(mutex);
      calls.at(worker) += 1;
      threads.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(calls, std::vector<int>(workers, 1));
    EXPECT_EQ(threads.size(), workers);
    EXPECT_TRUE(threads.contains(std::this_thread::get_id())) << "the caller is worker 0";
  }
}

TEST(ThreadPool, ZeroMeansOneWorkerPerUsableThread) {
  EXPECT_GE(usable_threads(), 1u);
  EXPECT_EQ(ThreadPool(0).size(), usable_threads());
}

TEST(ThreadPool, ParallelForCoversEveryIndexOnce) {
  ThreadPool pool(4);
  for (const size_t count : {0, 1, 2, 7, 64, 1000, 1001}) {
    for (const size_t grain : {0, 1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<bool> in_bounds = true;
      pool.parallel_for(count, grain, [&](size_t begin, size_t end, unsigned worker) {
        if (begin >= end || end > count || end - begin > std::max<size_t>(1, grain) || worker >= 4) in_bounds = false;
        for (size_t i = begin; i < end; ++i) seen[i] += 1;
      });
      EXPECT_TRUE(in_bounds);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(seen[i], 1) << i << " of " << count << " by " << grain;
    }
  }
}

// A decode step is hundreds of loops of a few microseconds: none may be lost, run twice or overlap with the next one.
TEST(ThreadPool, ManyShortLoopsInARow) {
  ThreadPool pool(3);
  std::atomic<size_t> inside = 0;
  size_t total = 0;  // written by the calling thread between loops only
  for (size_t loop = 0; loop < 5000; ++loop) {
    std::atomic<size_t> sum = 0;
    pool.run([&](unsigned worker) {
      inside += 1;
      sum += worker + 1;
      inside -= 1;
    });
    ASSERT_EQ(inside, 0u);
    ASSERT_EQ(sum, 6u);
    total += sum;
  }
  EXPECT_EQ(total, 30000u);
}

TEST(ThreadPool, WorkersThatFellAsleepWakeUp) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than a worker spins
    std::atomic<int> calls = 0;
    pool.run([&](unsigned) { calls += 1; });
    ASSERT_EQ(calls, 3);
  }
}

TEST(ThreadPool, AnExceptionOfAnyWorkerReachesTheCaller) {
  for (const unsigned workers : {1u, 4u}) {
    ThreadPool pool(workers);
    for (unsigned thrower = 0; thrower < workers; ++thrower) {
      std::atomic<unsigned> finished = 0;
      EXPECT_THROW(pool.run([&](unsigned worker) {
        if (worker == thrower) throw std::runtime_error("from a worker");
        finished += 1;
      }),
                   std::runtime_error);
      EXPECT_EQ(finished, workers - 1) << "the others finish first";
    }
    std::atomic<unsigned> calls = 0;
    pool.run([&](unsigned) { calls += 1; });
    EXPECT_EQ(calls, workers) << "the pool is usable afterwards and the old exception forgotten";
  }
}

TEST(ThreadPool, OfManyExceptionsOneArrives) {
  ThreadPool pool(4);
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROW(pool.run([](unsigned) { throw std::runtime_error("all of them"); }), std::runtime_error);
  }
  EXPECT_THROW(pool.parallel_for(100, 1, [](size_t, size_t, unsigned) { throw std::out_of_range("each piece"); }),
               std::out_of_range);
  pool.run([](unsigned) {});
}

TEST(ThreadPool, PoolsStartAndStopQuicklyWithoutWork) {
  for (int i = 0; i < 200; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, MoreWorkersThanProcessors) {
  ThreadPool pool(32);
  std::atomic<size_t> sum = 0;
  for (int i = 0; i < 100; ++i)
    pool.parallel_for(1000, 7, [&](size_t begin, size_t end, unsigned) { sum += end - begin; });
  EXPECT_EQ(sum, 100000u);
}

// In a process of its own, because a limit once lowered stays.
TEST(ThreadPoolDeathTest, SaysWhenTheSystemRefusesThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: sanitizers need more address space than the limit leaves";
#endif
  const auto ask_for_too_many = [] {
    const rlimit address_space{rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &address_space);
    try {
      const ThreadPool pool(100000);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(error.code() == ErrorCode::kOutOfMemory ? 7 : 8);
    }
    std::_Exit(9);
  };
  EXPECT_EXIT(ask_for_too_many(), testing::ExitedWithCode(7), "cannot start 100000 threads");
}

}  // namespace
}  // namespace carat
