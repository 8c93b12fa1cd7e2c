#include <algorithm>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "exec/kernel_choice.h"

namespace carat::cli {

namespace {

void print_kernels() {
  size_t choice_width = 0;
  size_t executor_width = 0;
  for (const exec::KernelOption& option : exec::kernel_registry()) {
    choice_width = std::max(choice_width, option.slot.size() + option.name.size() + 1);
    executor_width = std::max(executor_width, option.executor.size());
  }
  const std::string indent(executor_width + choice_width + 4, ' ');
  std::string text;
  for (const exec::KernelOption& option : exec::kernel_registry()) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", option.executor, executor_width,
                        fmt::format("{}={}", option.slot, option.name), choice_width, option.summary);
    text += fmt::format("{}exactness: {}\n", indent, option.exactness);
    if (!option.needs.empty()) text += fmt::format("{}needs: {}\n", indent, option.needs);
  }
  write_stdout(text + "\nPick with --kernels SLOT=NAME,... or the environment variable CARAT_KERNELS.\n");
}

}  // namespace

void add_kernels_command(CLI::App& app) {
  app.add_subcommand("kernels", "List every way to compute something that --kernels can pick")->callback(print_kernels);
}

}  // namespace carat::cli
