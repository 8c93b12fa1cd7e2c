#include <chrono>
#include <memory>
#include <string>

#include "base/byte_size.h"
#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/interrupts.h"
#include "cli/reports/pull_progress.h"
#include "cli/terminal.h"
#include "gguf/printable.h"
#include "gguf/reader.h"
#include "hub/environment.h"
#include "hub/hub_cache.h"
#include "hub/remote/pull.h"
#include "model/config.h"

namespace carat::cli {

namespace {

struct PullFlags {
  std::string model;
  std::string revision = "main";
  bool dry_run = false;
  bool verbose = false;
};

std::string describe(const hub::PullPlan& plan) {
  std::string text = fmt::format("{} at commit {}\n", plan.reference.id(), plan.commit);
  for (const hub::PlannedFile& planned : plan.files) {
    std::string state = "to download";
    if (planned.in_place || planned.downloaded) {
      state = "here already";
    } else if (planned.here_bytes > 0) {
      state =
          fmt::format("{} are here, {} to download", byte_size(planned.here_bytes), byte_size(planned.missing_bytes()));
    }
    text += fmt::format("  {}  {}  {}\n", planned.file.path, byte_size(planned.file.bytes), state);
  }
  return text + fmt::format("{} to download into {}\n", byte_size(plan.missing_bytes()), plan.repo_folder().string());
}

// A file that carat cannot run is fine to have, but better known now than when it is used.
void warn_about_other_models(const std::string& path, const Logger& log) {
  try {
    const auto file = gguf::ModelFile::open(path);
    const std::string_view architecture = file->metadata().string("general.architecture").value_or("");
    if (architecture != model::kArchitecture && architecture != model::kDrafterArchitecture) {
      log->warn("{} is no Gemma 4 model (general.architecture is {}); carat cannot run it", path,
                gguf::printable(architecture));
    }
  } catch (const Error& error) {
    log->warn("the file is as the repository has it, but carat cannot read it: {}", error.what());
  }
}

void pull(const PullFlags& flags) {
  const hub::RepoReference reference = hub::parse_repo_reference(flags.model);
  const hub::Environment environment = hub::process_environment();
  const hub::HubSettings settings = hub::read_settings(environment);
  if (settings.offline) fail(ErrorCode::kBadArgument, "HF_HUB_OFFLINE is set; unset it to download");
  const auto caches = hub::cache_folders(environment);
  if (caches.empty()) fail(ErrorCode::kBadArgument, "no folder for downloads: set HF_HUB_CACHE or HOME");

  const Logger log = make_logger(flags.verbose);
  const Stoppable stoppable;
  const auto transport = hub::make_http_transport({.user_agent = "carat/" CARAT_VERSION, .cancelled = &interrupted()});
  hub::HubClient client(settings, *transport,
                        {.sleep = hub::real_sleep(&interrupted()), .cancelled = &interrupted(), .log = log});
  const hub::PullPlan plan = hub::plan_pull(client, reference, flags.revision, caches.front());
  if (!plan.note.empty()) write_message(fmt::format("carat: {}", plan.note));
  if (flags.dry_run) return write_stdout(describe(plan));

  PullProgress progress(plan);
  try {
    hub::carry_out(client, plan, [&](const hub::DownloadProgress& done) { progress.show(done); });
  } catch (const Error& error) {
    progress.clear();
    if (error.code() == ErrorCode::kInterrupted) {
      write_message(
          fmt::format("carat: stopped; what arrived is kept, `carat pull {}` goes on from there", flags.model));
    }
    throw;
  }
  progress.finish();
  warn_about_other_models(plan.model_path().string(), log);
  write_stdout(plan.model_path().string() + "\n");
}

}  // namespace

void add_pull_command(CLI::App& app) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* command = app.add_subcommand("pull", "Download a model from the Hugging Face Hub into its usual cache");
  command->add_option("model", flags->model, "hf:owner/repo[:quant]; a download that was cut off is continued")
      ->type_name("MODEL")
      ->required();
  command->add_option("--revision", flags->revision, "branch, tag or commit")->capture_default_str();
  command->add_flag("--dry-run", flags->dry_run, "only say what would be downloaded");
  command->add_flag("-v,--verbose", flags->verbose, "say on stderr what was decided and why");
  command->callback([flags] { pull(*flags); });
}

}  // namespace carat::cli
