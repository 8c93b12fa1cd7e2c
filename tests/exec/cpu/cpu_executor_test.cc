// What is special to the CPU executor; exec/conformance has what it promises as every executor does.
#include "exec/cpu/cpu_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "support/executor_runs.h"
#include "support/raised_error.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using test::error_of;
using test::RaisedError;
using test::TinyKind;

ExecutorOptions small_options() {
  ExecutorOptions options;
  options.context = 128;
  options.chunk = 64;
  options.threads = 2;
  return options;
}

TEST(CpuExecutor, TheFlagIsSeenWhileAPassRuns) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = small_options();
  options.context = 100'000;
  options.cancelled = &cancelled;
  const auto executor = make_cpu_executor(model, options);
  const auto prompt = test::random_tokens(model->config().V, 100'000, 9);
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancelled = true;
  });
  const RaisedError error = error_of([&] { test::feed(*executor, 0, prompt, 64, prompt.size()); });
  user.join();
  EXPECT_EQ(error.code, ErrorCode::kInterrupted);
  EXPECT_EQ(executor->length(0) % 64, 0u);  // whole passes only
}

TEST(CpuExecutor, WhatItCannotDoIsRefused) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  ExecutorOptions quantised_cache = small_options();
  quantised_cache.kv_format = quant::Format::kQ4_0;
  const RaisedError format = error_of([&] { make_cpu_executor(model, quantised_cache); });
  EXPECT_EQ(format.code, ErrorCode::kUnsupported);
  EXPECT_THAT(format.message, testing::HasSubstr("F16, F32 or Q8_0"));
  quantised_cache.kv_format = quant::Format::kQ8_0;  // the heads of this model are 16 wide
  const RaisedError width = error_of([&] { make_cpu_executor(model, quantised_cache); });
  EXPECT_EQ(width.code, ErrorCode::kUnsupported);
  EXPECT_THAT(width.message, testing::HasSubstr("multiple of 32"));

  ExecutorOptions foreign_kernel = small_options();
  foreign_kernel.kernels = KernelChoices::parse("arithmetic=double");
  EXPECT_EQ(error_of([&] { make_cpu_executor(model, foreign_kernel); }).code, ErrorCode::kBadArgument);
}

}  // namespace
}  // namespace carat::exec
