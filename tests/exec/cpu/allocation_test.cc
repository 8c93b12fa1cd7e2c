// Nothing is allocated by forward(): memory is taken when the executor is made. The program's operator new is replaced
// by one that counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "exec/cpu/cpu_executor.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace {
std::atomic<size_t> allocated_bytes{0};

void* allocate(size_t size) {
  allocated_bytes += size;
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate_or_throw(size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return allocate_or_throw(size); }
void* operator new[](size_t size) { return allocate_or_throw(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace carat::exec {
namespace {

TEST(CpuExecutor, AllocatesNothingInAPass) {
  for (const test::TinyKind kind : test::kTinyKinds) {
    const auto model = test::tiny_model(kind, 32, quant::Format::kQ8_0);
    ExecutorOptions options;
    options.context = 2048;
    options.chunk = 64;
    options.threads = 2;
    const auto executor = make_cpu_executor(model, options);
    const auto tokens = test::random_tokens(model->config().V, 1000, 3);
    std::vector<Row> rows;
    rows.reserve(64);
    for (uint32_t position = 0; position < tokens.size();) {
      const uint32_t count = position < 960 ? 64 : 1;  // a prompt, then decoding
      rows.clear();
      for (uint32_t i = 0; i < count; ++i, ++position) rows.push_back({tokens[position], position, 0, i + 1 == count});
      const size_t before = allocated_bytes;
      executor->forward(rows);
      // The rule check of the sequence table keeps a number per sequence while it runs; that is all.
      EXPECT_LE(allocated_bytes - before, options.sequences * sizeof(uint32_t)) << "at position " << position;
    }
  }
}

}  // namespace
}  // namespace carat::exec
