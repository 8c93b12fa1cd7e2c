#include "cli/reports/pull_progress.h"

#include <gtest/gtest.h>

namespace carat::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Stage = hub::DownloadProgress::Stage;

TEST(PullProgress, DescribesADownload) {
  const hub::DownloadProgress progress{Stage::kDownloading, "m.gguf", 1'200'000'000, 4'300'000'000};
  EXPECT_EQ(describe_progress(progress, std::nullopt), "m.gguf: 1.20 GB of 4.30 GB, 27 %");
  EXPECT_EQ(describe_progress(progress, 45.1e6), "m.gguf: 1.20 GB of 4.30 GB, 27 %, 45.1 MB/s, 1 min 8 s left");
  EXPECT_EQ(describe_progress(progress, 0.0), "m.gguf: 1.20 GB of 4.30 GB, 27 %, 0 B/s");
  EXPECT_EQ(describe_progress({Stage::kChecking, "m.gguf", 500, 1000}, std::nullopt),
            "m.gguf: reading the 1.00 kB that are here, 50 %");
}

TEST(PullProgress, FitsNarrowTerminals) {
  const hub::DownloadProgress progress{Stage::kDownloading, "folder/a-long-name.gguf", 1'200'000'000, 4'300'000'000};
  EXPECT_EQ(fit_progress(progress, 45.1e6, 80), describe_progress(progress, 45.1e6));
  EXPECT_EQ(fit_progress(progress, 45.1e6, 60), "1.20 GB of 4.30 GB, 27 %, 45.1 MB/s, 1 min 8 s left");
  EXPECT_EQ(fit_progress(progress, 45.1e6, 39), "1.20 GB of 4.30 GB, 27 %, 45.1 MB/s, 1 ");
}

TEST(PullProgress, DescribesTimes) {
  EXPECT_EQ(describe_seconds(0), "0 s");
  EXPECT_EQ(describe_seconds(59), "59 s");
  EXPECT_EQ(describe_seconds(3599), "59 min 59 s");
  EXPECT_EQ(describe_seconds(7500), "2 h 5 min");
}

TEST(TransferRate, IsThatOfTheLastSeconds) {
  TransferRate rate;
  const TransferRate::Time start{};
  rate.add(0, start);
  rate.add(100, start + milliseconds(100));
  EXPECT_FALSE(rate.bytes_per_second());  // too short to tell
  for (int second = 1; second <= 10; ++second) rate.add(static_cast<uint64_t>(second) * 1000, start + seconds(second));
  EXPECT_NEAR(*rate.bytes_per_second(), 1000.0, 1.0);
  for (int second = 11; second <= 20; ++second) {
    rate.add(10'000 + static_cast<uint64_t>(second - 10) * 5000, start + seconds(second));
  }
  EXPECT_NEAR(*rate.bytes_per_second(), 5000.0, 1.0);  // nothing of the slow time is left
}

TEST(TransferRate, BeginsAgainWithAnotherFile) {
  TransferRate rate;
  const TransferRate::Time start{};
  rate.add(1'000'000, start);
  rate.add(10, start + seconds(1));
  EXPECT_FALSE(rate.bytes_per_second());
  rate.add(30, start + seconds(2));
  EXPECT_NEAR(*rate.bytes_per_second(), 20.0, 1e-9);
}

}  // namespace
}  // namespace carat::cli
