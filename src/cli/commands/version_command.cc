#include <string>

#include "base/thread_pool.h"
#include "cli/commands/commands.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

std::string cpu_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  std::string found;
  const auto add = [&found](bool present, const char* name) {
    if (present) found += (found.empty() ? "" : " ") + std::string(name);
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("f16c"), "f16c");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
  return found.empty() ? "none that carat uses" : found;
#else
  return "not examined on this architecture";
#endif
}

void print_version() {
#if defined(__clang__)
  constexpr const char* kCompiler = "clang " __clang_version__;
#else
  constexpr const char* kCompiler = "gcc " __VERSION__;
#endif
#ifdef CARAT_HAVE_CUDA
  constexpr const char* kExecutors = "reference, cpu, cuda";
#else
  constexpr const char* kExecutors = "reference, cpu";
#endif
#ifdef CARAT_SANITIZERS
  constexpr const char* kSanitizers = ", sanitizers " CARAT_SANITIZERS;
#else
  constexpr const char* kSanitizers = "";
#endif
  write_stdout(fmt::format("carat {}\nbuilt with: {}{}\nexecutors: {}\nCPU features: {}\nusable CPU threads: {}\n",
                           CARAT_VERSION, kCompiler, kSanitizers, kExecutors, cpu_features(), usable_threads()));
}

}  // namespace

void add_version_command(CLI::App& app) {
  app.add_subcommand("version", "Version, compiler, executors and what this CPU can do")->callback(print_version);
}

}  // namespace carat::cli
