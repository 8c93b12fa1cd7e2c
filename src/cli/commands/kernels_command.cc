#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/gpu_flag.h"
#include "cli/flags/model_flags.h"
#include "cli/reports/plan_report.h"
#include "cli/terminal.h"
#include "exec/cuda/plan/plan.h"
#include "exec/kernel_choice.h"

namespace carat::cli {

namespace {

struct KernelsFlags {
  std::string model;
  GpuFlag gpu;
};

std::string registry_text() {
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
  return text + "\nPick with --kernels SLOT=NAME,... or the environment variable CARAT_KERNELS.\n";
}

// What a GPU would use, or why that cannot be said.
std::string gpu_text(const KernelsFlags& flags) {
  if (flags.model.empty()) return "Give -m FILE to see what a GPU would use for that model.\n";
  const auto model = model::Model::load(gguf::ModelFile::open(ModelFlags{.path = flags.model}.resolved_path()));
  try {
    const cuda::GpuFacts gpu = flags.gpu.resolve();
    cuda::PlanRequest request;
    request.context = std::min(model->config().context_length, kDefaultContext);
    const cuda::Plan plan = cuda::make_plan(*model, gpu, request);
    return fmt::format("{} would use for {} with a context of {}:\n{}{}", gpu.name, flags.model, plan.context,
                       decisions_text(plan), plan.fits ? "" : "but it does not fit; see `carat plan`\n");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return fmt::format("What a GPU would use cannot be said: {}\n", error.what());
  }
}

}  // namespace

void add_kernels_command(CLI::App& app) {
  auto flags = std::make_shared<KernelsFlags>();
  CLI::App* command = app.add_subcommand("kernels", "List every way to compute something that --kernels can pick");
  command->add_option("-m,--model", flags->model, "also show what a GPU would use for this model")->type_name("MODEL");
  flags->gpu.add_to(*command);
  command->callback([flags] { write_stdout(registry_text() + gpu_text(*flags)); });
}

}  // namespace carat::cli
