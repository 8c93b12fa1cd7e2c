#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace carat::cli {

// The commands and flags as plain data, for what is made from them: shell completions and the manual page.

// What may stand where an argument is expected.
struct ArgumentDescription {
  std::string form;                  // as the help shows it, such as FILE, N or N|auto|all; empty: there is none
  std::vector<std::string> choices;  // the words among the alternatives of the form: auto, all
  bool is_file = false;              // names of files are among them
};

struct OptionDescription {
  std::vector<std::string> names;  // as people type them: -m, --model, -ngl
  ArgumentDescription argument;
  std::string help;
  std::string default_value;  // empty: none, or the help says it
  std::string environment;    // the variable that stands in for the flag; empty: none
  bool repeatable = false;

  bool takes_argument() const { return !argument.form.empty(); }
};

struct PositionalDescription {
  std::string name;
  ArgumentDescription argument;
  std::string help;
  bool required = false;
  bool repeatable = false;
};

struct CommandDescription {
  std::string name;
  std::string help;
  std::vector<OptionDescription> options;
  std::vector<PositionalDescription> positionals;
};

struct AppDescription {
  CommandDescription program;  // its flags before any command
  std::vector<CommandDescription> commands;
};

AppDescription describe_app(const CLI::App& app);

// Reads the type name of an option. Its alternatives stand between |: those without a capital letter are words to be
// typed as they are, FILE... and MODEL are files, every other one (N, TEXT) stands for a value.
ArgumentDescription describe_argument(const std::string& type_name);

}  // namespace carat::cli
