#include <memory>

#include "cli/commands/commands.h"
#include "cli/flags/serve_flags.h"
#include "cli/serving.h"

namespace carat::cli {

void add_serve_command(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over HTTP to OpenAI's, Anthropic's and Ollama's clients");
  flags->add_to(*command);
  command->callback([flags] { serve(*flags); });
}

}  // namespace carat::cli
