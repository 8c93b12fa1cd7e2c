#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands/commands.h"
#include "cli/flags/gpu_flag.h"
#include "cli/flags/model_flags.h"
#include "cli/reports/machine_limits.h"
#include "cli/reports/plan_report.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

struct PlanFlags {
  std::string file;
  GpuFlag gpu;
  std::optional<uint32_t> context;
  std::optional<uint32_t> micro_batch;
  uint32_t sequences = 1;
  std::string gpu_layers = "auto";
  CacheTypeFlags cache;
  std::string kernels;
  bool json = false;
};

void print_plan(const PlanFlags& flags) {
  const auto model = model::Model::load(gguf::ModelFile::open(ModelFlags{.path = flags.file}.resolved_path()));
  const model::Config& config = model->config();
  if (config.is_drafter()) {
    fail(ErrorCode::kUnsupported, "{} is a drafter ({}): it runs beside a full model, plan for that",
         model->file().path(), config.architecture);
  }
  cuda::PlanRequest request;
  request.context = flags.context.value_or(std::min(config.context_length, kDefaultContext));
  if (request.context == 0) request.context = config.context_length;
  request.chunk = chosen_chunk({}, flags.micro_batch, request.context);
  request.sequences = flags.sequences;
  request.outputs = flags.sequences;
  request.gpu_layers = parse_gpu_layers(flags.gpu_layers);
  request.kv_format = flags.cache.chosen();
  request.kernels = exec::KernelChoices::parse(flags.kernels);
  PlanReport report;
  report.model = model->file().path();
  report.layers = config.L;
  report.context_length = config.context_length;
  report.gpu = flags.gpu.resolve();
  report.described = !flags.gpu.described.empty();
  report.plan = cuda::make_plan(*model, report.gpu, request);
  // A described GPU is in another machine, whose memory is not known.
  if (!report.described && report.layers_on_cpu() > 0) {
    report.host_bytes_per_second = read_bandwidth(usable_threads(), report.plan.split.bytes_per_token);
    report.host_measured = true;
  }
  if (flags.json) {
    write_stdout(plan_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    write_stdout(plan_text(report));
  }
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "Show what a GPU would hold of a model, whether it fits and which kernels would run, without loading it");
  command->add_option("file", flags->file, "the model (default: the demo model)")->type_name("MODEL");
  command->add_option("-m,--model", flags->file, "the same, as other commands have it")->type_name("MODEL");
  flags->gpu.add_to(*command);
  command->add_option(
      "-c,--ctx-size", flags->context,
      fmt::format("context in tokens (default: the model's, at most {}; 0: the model's)", kDefaultContext));
  command->add_option("--ub,--ubatch-size", flags->micro_batch,
                      "(-ub) most tokens in one forward pass (default: as large as is useful and fits)");
  command->add_option("--sequences", flags->sequences, "conversations at a time")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  command
      ->add_option("--ngl,--n-gpu-layers", flags->gpu_layers,
                   "(-ngl) layers on the GPU, the others on the CPU: a number, auto (as many as fit) or all")
      ->type_name("N|auto|all")
      ->capture_default_str();
  flags->cache.add_to(*command);
  command->add_option("--kernels", flags->kernels, "SLOT=NAME,... picks kernels by hand; `carat kernels` lists them")
      ->type_name("SLOT=NAME,...")
      ->envname("CARAT_KERNELS");
  command->add_flag("--json", flags->json, "one JSON object");
  command->callback([flags] { print_plan(*flags); });
}

}  // namespace carat::cli
