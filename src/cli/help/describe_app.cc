#include "cli/help/describe_app.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/arguments.h"

namespace carat::cli {

namespace {

bool has_capital(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isupper(c) != 0; });
}

// --ngl is only what the parser calls it: people type -ngl.
std::string typed_name(const std::string& long_name) {
  const std::string short_form = "-" + long_name;
  const auto known = long_short_flags();
  return std::find(known.begin(), known.end(), short_form) != known.end() ? short_form : "-" + short_form;
}

// The help of such a flag begins with "(-ngl) ", since the parser's list shows --ngl.
std::string help_without_short_form(const std::string& help, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string prefix = "(" + name + ") ";
    if (help.starts_with(prefix)) return help.substr(prefix.size());
  }
  return help;
}

// A list keeps every occurrence, a joined list too; a plain value only the last.
bool is_repeatable(const CLI::Option& option) {
  return option.get_items_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::Join;
}

OptionDescription describe_option(const CLI::Option& option) {
  OptionDescription description;
  for (const std::string& name : option.get_snames()) description.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) description.names.push_back(typed_name(name));
  const bool is_flag = option.get_type_size_max() == 0;
  if (!is_flag) {
    description.argument = describe_argument(option.get_type_name());
    description.default_value = option.get_default_str();
    description.repeatable = is_repeatable(option);
  }
  description.help = help_without_short_form(option.get_description(), description.names);
  description.environment = option.get_envname();
  return description;
}

CommandDescription describe_command(const CLI::App& command) {
  CommandDescription description{command.get_name(), command.get_description(), {}, {}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    if (option->nonpositional()) {
      description.options.push_back(describe_option(*option));
    } else {
      description.positionals.push_back({option->get_name(true), describe_argument(option->get_type_name()),
                                         option->get_description(), option->get_required(), is_repeatable(*option)});
    }
  }
  return description;
}

}  // namespace

ArgumentDescription describe_argument(const std::string& type_name) {
  ArgumentDescription description;
  description.form = type_name.substr(0, type_name.find(':'));  // what follows comes from checks of the value
  for (std::string_view rest = description.form; !rest.empty();) {
    const std::string_view alternative = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(alternative.size() + 1, rest.size()));
    if (alternative.starts_with("FILE") || alternative == "MODEL") {
      description.is_file = true;
    } else if (!has_capital(alternative)) {
      description.choices.emplace_back(alternative);
    }
  }
  return description;
}

AppDescription describe_app(const CLI::App& app) {
  AppDescription description{describe_command(app), {}};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    description.commands.push_back(describe_command(*command));
  }
  return description;
}

}  // namespace carat::cli
