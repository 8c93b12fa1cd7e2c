#include "cli/reports/batch_report.h"

#include <gtest/gtest.h>

namespace carat::cli {
namespace {

TEST(BatchReport, SaysHowFarItIsAndHowLongItTakes) {
  batch::BatchProgress progress{.total = 1'234'567, .done = 0};
  EXPECT_EQ(describe_batch(progress, std::nullopt), "0 of 1,234,567 lines");
  progress.done = 234'567;
  progress.failed = 1200;
  progress.tokens_per_second = 4100.4;
  EXPECT_EQ(describe_batch(progress, 100.0),
            "234,567 of 1,234,567 lines · 1,200 failed · 100 lines/s · 4,100 t/s · 2 h 46 min left");
  progress.done = progress.total;
  EXPECT_EQ(describe_batch(progress, 31.24), "1,234,567 of 1,234,567 lines · 1,200 failed · 31.2 lines/s · 4,100 t/s");
}

}  // namespace
}  // namespace carat::cli
