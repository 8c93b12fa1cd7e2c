#pragma once

#include <CLI/CLI.hpp>

namespace carat::cli {

// One function per subcommand, each in <name>_command.cc: adds the subcommand with its flags to `app` and sets the
// callback that carries it out. A callback reports failure by throwing carat::Error; main() turns that into a message
// and an exit code. Results go to stdout, everything else to stderr.
void add_run_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_imatrix_command(CLI::App& app);
void add_quantize_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_batch_command(CLI::App& app);
void add_synth_command(CLI::App& app);
void add_schema_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_profile_command(CLI::App& app);
void add_plot_command(CLI::App& app);
void add_kernels_command(CLI::App& app);
void add_completion_command(CLI::App& app);
void add_man_command(CLI::App& app);
void add_pull_command(CLI::App& app);
void add_ls_command(CLI::App& app);
void add_version_command(CLI::App& app);

}  // namespace carat::cli
