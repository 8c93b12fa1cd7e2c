#include <memory>
#include <string>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/help/completion_scripts.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

std::string completion_script(const std::string& shell, const AppDescription& app) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "zsh") return zsh_completion(app);
  if (shell == "fish") return fish_completion(app);
  fail(ErrorCode::kBadArgument, "there is no completion for \"{}\"; give bash, zsh or fish", shell);
}

}  // namespace

void add_completion_command(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes carat's flags in a shell");
  command->add_option("shell", *shell, "the shell to print it for")->type_name("bash|zsh|fish")->required();
  command->callback([shell, &app] { write_stdout(completion_script(*shell, describe_app(app))); });
}

}  // namespace carat::cli
