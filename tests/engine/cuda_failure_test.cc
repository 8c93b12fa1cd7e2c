// A GPU that fails while a text is written: the error is said once, and the run ends.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/failing_kernel.h"
#include "exec/cuda/executor/cuda_executor.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::engine {
namespace {

constexpr int kEnded = 6;

exec::ExecutorOptions options() {
  exec::ExecutorOptions options;
  options.context = 128;
  options.chunk = 64;
  return options;
}

// As the program does it: an error leaves through everything and is written where the process ends. What is destroyed
// on the way holds memory, graphs and streams of the GPU that failed, and must neither throw nor write.
[[noreturn]] void write_until_the_gpu_fails() {
  try {
    const auto model = test::tiny_model(test::TinyKind::kE4B);
    Engine engine(exec::make_cuda_executor(model, options()), text::Vocab::from_metadata(model->file().metadata()));
    Request request;
    request.prompt = test::random_tokens(model->config().V, 20, 1);
    request.max_tokens = 40;
    request.ignore_stops = true;
    int tokens = 0;
    const auto sequence = engine.submit(request, [&](text::TokenId) {
      if (++tokens == 3) test::fail_on_the_gpu();
    });
    engine.run();
    if (sequence->failure()) sequence->failure()->rethrow();
    std::fprintf(stderr, "%d tokens were written by a GPU that does not work\n", tokens);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    std::exit(error.code() == ErrorCode::kDevice ? kEnded : 1);
  }
  std::exit(0);
}

TEST(CudaFailureTest, IsSaidOnceAndEndsTheRun) {
  std::string why;
  if (!exec::cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own: this one keeps its GPU
  EXPECT_EXIT(write_until_the_gpu_fails(), testing::ExitedWithCode(kEnded),
              "^error: CUDA error in [^\n]*; this process can no longer use the GPU\n$");
}

}  // namespace
}  // namespace carat::engine
