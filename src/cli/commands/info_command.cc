#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/reports/info_report.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

struct InfoFlags {
  std::string file;
  std::vector<uint32_t> contexts;
  uint32_t micro_batch = exec::kDefaultChunk;
  bool tensors = false;
  bool json = false;
};

void print_info(const InfoFlags& flags) {
  InfoReport report;
  report.file = gguf::ModelFile::open(ModelFlags{.path = flags.file}.resolved_path());
  report.types = count_types(*report.file);
  // A file that cannot be run is worth looking at all the more: show what can be shown, then fail.
  std::exception_ptr failure;
  try {
    report.model = model::Model::load(report.file);
    report.census = census_of(*report.file, report.model->config());
    report.chunk = flags.micro_batch;
    report.memory = memory_table(*report.model, flags.contexts, flags.micro_batch);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  if (flags.json) {
    write_stdout(info_json(report, flags.tensors).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    write_stdout(info_text(report, flags.tensors));
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void add_info_command(CLI::App& app) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* command = app.add_subcommand("info", "Show what is in a model file and what memory it needs");
  command->add_option("file", flags->file, "the model (default: the demo model)")->type_name("MODEL");
  command->add_option("-m,--model", flags->file, "the same, as other commands have it")->type_name("MODEL");
  command->add_option("-c,--ctx-size", flags->contexts, "contexts to compute the memory for, such as 4096,32768")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 30));
  command->add_option("--ub,--ubatch-size", flags->micro_batch, "(-ub) rows of a forward pass")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->add_flag("--json", flags->json, "one JSON object");
  command->callback([flags] { print_info(*flags); });
}

}  // namespace carat::cli
