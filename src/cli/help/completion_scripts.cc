#include "cli/help/completion_scripts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace carat::cli {

namespace {

// `text` with `escape` before each of `characters`.
std::string escaped(std::string_view text, std::string_view characters, std::string_view escape = "\\") {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) result += escape;
    result += c;
  }
  return result;
}

// In single quotes for bash and zsh, where nothing but the quote itself is special.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

// ---- bash ----

// The data are two tables, and one function looks things up in them.
constexpr std::string_view kBashFunction = R"(
  # The words before the current one; --flag=value, which bash cuts into three, counts as two of them.
  local -a words=()
  local word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == '=' ]] || words+=("$word")
  done
  local current=${COMP_WORDS[COMP_CWORD]}
  [[ $current == '=' ]] && current=''

  local command=carat flag='' position=1
  for word in "${words[@]}"; do
    if [[ -n $flag ]]; then
      flag=''
    elif [[ $word == -?* ]]; then
      [[ -n ${arguments["$command:$word"]+known} ]] && flag=$word
    elif [[ $command == carat ]]; then
      command=$word
    else
      position=$((position + 1))
    fi
  done

  local offered
  if [[ -n $flag ]]; then
    offered=${arguments["$command:$flag"]}
  elif [[ $current == -* ]]; then
    offered=${flags["$command"]-}
  else
    offered=${arguments["$command:$position"]-}
  fi
  COMPREPLY=()
  if [[ " $offered " == *' <file> '* ]]; then
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
  mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "${offered/<file>/}" -- "$current")
}
complete -F _carat carat
)";

std::string bash_argument(const ArgumentDescription& argument) {
  std::vector<std::string> offered = argument.choices;
  if (argument.is_file) offered.push_back("<file>");
  return shell_quoted(fmt::format("{}", fmt::join(offered, " ")));
}

std::string bash_flags(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("    [{}]={}\n", command.name, shell_quoted(fmt::format("{}", fmt::join(names, " "))));
}

std::string bash_arguments(const CommandDescription& command) {
  std::string text;
  for (const OptionDescription& option : command.options) {
    if (!option.takes_argument()) continue;
    for (const std::string& name : option.names) {
      text += fmt::format("    [{}:{}]={}\n", command.name, name, bash_argument(option.argument));
    }
  }
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    text += fmt::format("    [{}:{}]={}\n", command.name, i + 1, bash_argument(command.positionals[i].argument));
  }
  return text;
}

// ---- zsh ----

std::string zsh_action(const ArgumentDescription& argument) {
  if (argument.is_file) return "_files";
  if (argument.choices.empty()) return " ";  // anything, and nothing is offered
  return fmt::format("({})", fmt::join(argument.choices, " "));
}

std::string zsh_argument(const ArgumentDescription& argument) {
  return fmt::format(":{}:{}", escaped(argument.form, ":\\"), zsh_action(argument));
}

// '(-m --model)'{-m,--model=}'[help]:FILE:_files'
std::string zsh_option(const OptionDescription& option) {
  std::vector<std::string> forms;
  for (const std::string& name : option.names) {
    forms.push_back(option.takes_argument() && name.starts_with("--") ? name + "=" : name);
  }
  const std::string names =
      forms.size() == 1 ? forms[0] : fmt::format("{{{}}}", fmt::join(forms, ","));  // the shell expands the braces
  const std::string group =
      option.repeatable ? "'*'" : fmt::format("'({})'", fmt::join(option.names, " "));  // each excludes the others
  const std::string help = fmt::format("[{}]", escaped(option.help, "[]\\"));
  return fmt::format("{}{}{}", group, names,
                     shell_quoted(help + (option.takes_argument() ? zsh_argument(option.argument) : "")));
}

std::string zsh_positional(const PositionalDescription& positional, size_t number) {
  const std::string place = positional.repeatable ? "*" : std::to_string(number) + (positional.required ? "" : ":");
  return shell_quoted(fmt::format("{}:{}:{}", place, escaped(positional.name, ":\\"), zsh_action(positional.argument)));
}

std::string zsh_command(const CommandDescription& command) {
  std::string text = fmt::format("        {})\n          _arguments", command.name);
  for (const OptionDescription& option : command.options) text += " \\\n            " + zsh_option(option);
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    text += " \\\n            " + zsh_positional(command.positionals[i], i + 1);
  }
  return text + "\n          ;;\n";
}

// ---- fish ----

// Whether the first word that is no flag is the given command; without one, whether there is none yet.
constexpr std::string_view kFishFunction = R"(function __carat_command
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        string match -q -- '-*' $word; and continue
        test "$word" = "$argv[1]"
        return
    end
    test -z "$argv[1]"
end
)";

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

std::string fish_argument(const ArgumentDescription& argument) {
  std::string text;
  if (argument.is_file) text += " -F";
  if (!argument.choices.empty()) text += " -a " + fish_quoted(fmt::format("{}", fmt::join(argument.choices, " ")));
  return text;
}

std::string fish_name(const std::string& name) {
  if (name.starts_with("--")) return " -l " + name.substr(2);
  return (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
}

std::string fish_command(const CommandDescription& command, std::string_view condition) {
  const std::string begin = fmt::format("complete -c carat -n {}", fish_quoted(condition));
  std::string text;
  for (const OptionDescription& option : command.options) {
    text += begin;
    for (const std::string& name : option.names) text += fish_name(name);
    // -r: a word follows; -f: no files unless -F says so
    if (option.takes_argument()) text += (option.argument.is_file ? " -r" : " -r -f") + fish_argument(option.argument);
    text += fmt::format(" -d {}\n", fish_quoted(option.help));
  }
  for (const PositionalDescription& positional : command.positionals) {
    const std::string offered = fish_argument(positional.argument);
    if (!offered.empty()) text += begin + offered + "\n";
  }
  return text;
}

}  // namespace

std::string bash_completion(const AppDescription& app) {
  std::vector<std::string> names;
  for (const CommandDescription& command : app.commands) names.push_back(command.name);
  std::string flags = bash_flags(app.program);
  std::string arguments =
      bash_arguments(app.program) +
      fmt::format("    [{}:1]={}\n", app.program.name, shell_quoted(fmt::format("{}", fmt::join(names, " "))));
  for (const CommandDescription& command : app.commands) {
    flags += bash_flags(command);
    arguments += bash_arguments(command);
  }
  return "# bash completion for carat, made by `carat completion bash`\n_carat() {\n"
         "  # The flags of each command, and what is offered after a flag or at a place: words, <file> for file "
         "names.\n"
         "  local -A flags=(\n" +
         flags + "  )\n  local -A arguments=(\n" + arguments + "  )\n" + std::string(kBashFunction);
}

std::string zsh_completion(const AppDescription& app) {
  std::string text =
      "#compdef carat\n# zsh completion for carat, made by `carat completion zsh`\n_carat() {\n"
      "  local context state state_descr line\n  typeset -A opt_args\n  _arguments -C";
  for (const OptionDescription& option : app.program.options) text += " \\\n    " + zsh_option(option);
  text +=
      " \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n  case $state in\n    command)\n"
      "      local -a commands=(\n";
  for (const CommandDescription& command : app.commands) {
    text += fmt::format("        {}\n", shell_quoted(command.name + ":" + escaped(command.help, ":\\")));
  }
  text += "      )\n      _describe command commands\n      ;;\n    argument)\n      case $words[1] in\n";
  for (const CommandDescription& command : app.commands) text += zsh_command(command);
  // Autoloaded, the file is the body of the function; sourced, it registers it.
  return text +
         "      esac\n      ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _carat ]]; then\n  _carat \"$@\"\nelse\n  compdef _carat carat\nfi\n";
}

std::string fish_completion(const AppDescription& app) {
  std::string text = "# fish completion for carat, made by `carat completion fish`\n" + std::string(kFishFunction) +
                     "complete -c carat -f\n" + fish_command(app.program, "__carat_command");
  for (const CommandDescription& command : app.commands) {
    text += fmt::format("complete -c carat -n __carat_command -a {} -d {}\n", command.name, fish_quoted(command.help));
  }
  for (const CommandDescription& command : app.commands) {
    text += fish_command(command, "__carat_command " + command.name);
  }
  return text;
}

}  // namespace carat::cli
