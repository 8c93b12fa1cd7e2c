#include "server/metrics/process_figures.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <vector>

namespace carat::server {
namespace {

constexpr std::string_view kMachine = "cpu  1 2 3\nctxt 5\nbtime 1700000000\nprocesses 7\n";
constexpr std::string_view kFieldsAfterName =
    " S 1 2 3 0 -1 4194560 100 0 2 0 250 50 0 0 20 0 9 0 1234 8192000 77 18446744073709551615 1 1 0 0\n";

TEST(ProcessFigures, AreReadFromProc) {
  const auto figures = process_figures_of("42 (carat)" + std::string(kFieldsAfterName), kMachine, 100.0, 4096);
  ASSERT_TRUE(figures.has_value());
  EXPECT_DOUBLE_EQ(figures->cpu_seconds, 3.0);
  EXPECT_DOUBLE_EQ(figures->start_seconds, 1700000012.34);
  EXPECT_EQ(figures->threads, 9u);
  EXPECT_EQ(figures->virtual_bytes, 8192000u);
  EXPECT_EQ(figures->resident_bytes, 77u * 4096);
}

TEST(ProcessFigures, ANameMayHoldSpacesAndParentheses) {
  const auto figures = process_figures_of("42 (a) b (c) 9)" + std::string(kFieldsAfterName), kMachine, 100.0, 4096);
  ASSERT_TRUE(figures.has_value());
  EXPECT_EQ(figures->threads, 9u);
}

TEST(ProcessFigures, WhatIsNotAsExpectedGivesNothing) {
  EXPECT_FALSE(process_figures_of("", kMachine, 100.0, 4096).has_value());
  EXPECT_FALSE(process_figures_of("42 (carat) S 1 2", kMachine, 100.0, 4096).has_value());
  EXPECT_FALSE(process_figures_of("42 (carat)" + std::string(kFieldsAfterName), "cpu 1\n", 100.0, 4096).has_value());
}

TEST(ProcessFigures, OfThisProcess) {
  const auto before = read_process_figures();
  ASSERT_TRUE(before.has_value());
  EXPECT_GT(before->resident_bytes, 0u);
  EXPECT_GE(before->virtual_bytes, before->resident_bytes);
  EXPECT_GE(before->threads, 1u);
  EXPECT_LE(before->start_seconds, static_cast<double>(std::time(nullptr)) + 1.0);
  EXPECT_GT(before->start_seconds, static_cast<double>(std::time(nullptr)) - 3600.0);
  std::vector<int> files;
  for (int i = 0; i < 5; ++i) files.push_back(open("/dev/null", O_RDONLY));
  EXPECT_EQ(read_process_figures()->open_files, before->open_files + 5);
  for (const int file : files) close(file);
}

}  // namespace
}  // namespace carat::server
