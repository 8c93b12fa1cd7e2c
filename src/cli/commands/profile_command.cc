#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/help/markup.h"
#include "cli/interrupts.h"
#include "cli/reports/profile_report.h"
#include "cli/terminal.h"
#include "hub/carat_cache.h"
#include "runtime/model_loader.h"

namespace carat::cli {

namespace {

struct ProfileFlags {
  ModelFlags model;
  exec::ProfileRequest request;
  std::optional<uint32_t> context;
  std::optional<uint32_t> micro_batch;
  std::string kernels;
  std::string output;
  bool json = false;
};

void profile(const ProfileFlags& flags) {
  const Logger log = make_logger(flags.model.verbose);
  const auto model = runtime::load_model(flags.model.resolved_path()).model;
  if (model->config().is_drafter()) {
    fail(ErrorCode::kUnsupported, "{} is a drafter ({}): it cannot run alone", model->file().path(),
         model->config().architecture);
  }
  exec::ExecutorOptions options;
  options.log = log;
  options.cancelled = &interrupted();
  options.outputs = 1;
  options.kernels = exec::KernelChoices::parse(flags.kernels);
  options.cache_folder = hub::carat_cache_folder(hub::process_environment());
  options.context = flags.context.value_or(1);  // made large enough for the tokens
  if (options.context == 0) options.context = model->config().context_length;
  options.chunk = chosen_chunk({}, flags.micro_batch, std::max(options.context, flags.request.prompt));
  exec::ProfileReport report;
  {
    const Stoppable stoppable;
    ProgressLine line;
    line.show("measuring the GPU's limits");
    report = exec::profile_cuda(model, options, flags.request, loading_progress(line));
  }
  if (!flags.output.empty()) {
    write_page(flags.output, profile_html(report));
    write_message(fmt::format("carat: wrote {}", flags.output));
  }
  if (flags.json) {
    write_stdout(profile_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    write_stdout(profile_text(report));
  }
}

}  // namespace

void add_profile_command(CLI::App& app) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command =
      app.add_subcommand("profile", "Where the time of prompts and of generation goes on the GPU, against its limits");
  flags->model.add_to(*command);
  command->add_option("FILE", flags->model.path, "the model, the same as -m")->type_name("MODEL");
  command->add_option("-p,--n-prompt", flags->request.prompt, "tokens of the prompt; 0: none")
      ->check(CLI::Range(0u, 1u << 24))
      ->capture_default_str();
  command->add_option("-n,--n-gen", flags->request.generate, "tokens to generate after it; 0: none")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  command->add_option("-r,--repetitions", flags->request.repetitions, "how often each measurement is repeated")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  command->add_option("-c,--ctx-size", flags->context, "context to plan for (default: as long as -p and -n need)");
  command->add_option("--ub,--ubatch-size", flags->micro_batch,
                      "(-ub) most tokens in one forward pass (default: what suits the device and its memory)");
  command->add_option("--kernels", flags->kernels, "SLOT=NAME,... picks kernels by hand; `carat kernels` lists them")
      ->type_name("SLOT=NAME,...")
      ->envname("CARAT_KERNELS");
  command->add_option("-o,--output", flags->output, "also write a page with charts to this file")
      ->type_name("FILE.html");
  command->add_flag("--json", flags->json, "one JSON object instead of tables");
  command->callback([flags] { profile(*flags); });
}

}  // namespace carat::cli
