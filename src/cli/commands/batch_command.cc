#include <memory>

#include "cli/batching.h"
#include "cli/commands/commands.h"
#include "cli/flags/batch_flags.h"

namespace carat::cli {

void add_batch_command(CLI::App& app) {
  auto flags = std::make_shared<BatchFlags>();
  CLI::App* command = app.add_subcommand("batch", "Answer the requests of a file, as OpenAI's batches, into another");
  flags->add_to(*command);
  command->callback([flags] { run_batch(*flags); });
}

}  // namespace carat::cli
