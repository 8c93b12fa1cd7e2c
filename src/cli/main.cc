#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/arguments.h"
#include "cli/commands/commands.h"
#include "cli/exit_codes.h"
#include "cli/help/nearest_flag.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"

namespace {

using namespace carat;
using namespace carat::cli;

void say(std::string_view kind, std::string_view message) {
  write_message(fmt::format("carat: {}: {}", kind, message));
}

// A mistyped command gets told so, rather than that one is missing.
void check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == arguments.front()) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  fail(ErrorCode::kBadArgument, "there is no command \"{}\"; known are {}", arguments.front(), known);
}

// What was not understood, and what was probably meant.
std::string unknown_flags(const CLI::App& app, const CLI::ExtrasError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  for (const std::string& word : command.remaining()) {
    if (!word.starts_with('-')) continue;
    const std::string nearest = nearest_flag(command, word);
    const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
    return fmt::format("carat {} has no flag {}{}", command.get_name(), word, hint);
  }
  return error.what();
}

// Parses and carries out; every callback runs inside parse().
int dispatch(CLI::App& app, std::vector<std::string> arguments) {
  check_command(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help
    return app.exit(request);
  } catch (const CLI::RuntimeError& ending) {  // a command that says how it ended by its status
    return ending.get_exit_code();
  } catch (const CLI::ExtrasError& error) {
    say("error", unknown_flags(app, error));
    write_stderr("Run `carat --help` or `carat COMMAND --help` for what is possible.\n");
    return kBadUsage;
  } catch (const CLI::ParseError& error) {
    say("error", error.what());
    write_stderr("Run `carat --help` or `carat COMMAND --help` for what is possible.\n");
    return kBadUsage;
  }
  return kSuccess;
}

}  // namespace

int main(int count, char** values) {
  install_interrupt_handler();
  install_truncation_handler();
  try {
    CLI::App app("carat: fast, exact inference of Gemma 4 models", "carat");
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string("carat ") + CARAT_VERSION);
    add_chat_command(app);
    add_run_command(app);
    add_serve_command(app);
    add_batch_command(app);
    add_info_command(app);
    add_tokenize_command(app);
    add_schema_command(app);
    add_bench_command(app);
    add_perplexity_command(app);
    add_imatrix_command(app);
    add_quantize_command(app);
    add_synth_command(app);
    add_plan_command(app);
    add_profile_command(app);
    add_plot_command(app);
    add_kernels_command(app);
    add_completion_command(app);
    add_man_command(app);
    add_pull_command(app);
    add_ls_command(app);
    add_version_command(app);
    return dispatch(app, normalise_arguments(count, values));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      write_message("carat: interrupted");
    } else {
      say("error", error.what());
    }
    return exit_code(error.code());
  } catch (const std::bad_alloc&) {
    say("error", "out of memory; a smaller context (-c) or model needs less, `carat info FILE` says how much");
    return kNoMemory;
  } catch (const std::exception& error) {
    say("internal error", error.what());
    return kInternalError;
  }
}
