#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "cli/commands/commands.h"
#include "cli/exit_codes.h"
#include "cli/help/describe_app.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

// The day the texts below were last changed; not the day of the build, so that every build gives the same page.
constexpr std::string_view kDate = "2026-11-15";

// Paragraphs, with an empty line between them.
constexpr std::string_view kDescription =
    "carat answers questions, and measures and converts models, with the Gemma 4 family in GGUF files: on an NVIDIA "
    "GPU "
    "where there is one, on the CPU everywhere.\n\n"
    "Results go to standard output; warnings and, on a terminal, progress and figures go to standard error. Piped, the "
    "output is plain text.\n\n"
    "Flags are those of llama.cpp where the two do the same thing. `--` ends the flags: what follows is text.";

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kExamples = {{
    {"carat chat", "Talk to the demo model that comes with carat."},
    {"carat run -m gemma-4-E4B-it-Q4_0.gguf -p \"What is nginx?\" --temp 0",
     "Ask one question; the same answer each time."},
    {"carat plan gemma-4-26B-A4B-it-Q4_0.gguf -c 32768 --gpu \"RTX 4070 Ti,8.9,60,12\"",
     "See whether a model fits a GPU before buying either."},
    {"carat completion bash > ~/.local/share/bash-completion/completions/carat", "Complete carat's flags in bash."},
}};

// What a variable does that stands in for no flag.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kVariables = {{
    {"NO_COLOR", "Set to anything: no colours on the terminal."},
    {"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE", "The folder of models from the Hugging Face Hub."},
    {"HF_HOME", "The folder that has the folders and files of the Hub where nothing more exact is set."},
    {"HF_ENDPOINT", "Where `carat pull` downloads from; https://huggingface.co unless set."},
    {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH",
     "The token for models that are not open to all, or the file that holds it."},
    {"HF_HUB_OFFLINE", "Set to 1: nothing is downloaded."},
    {"XDG_CACHE_HOME, XDG_STATE_HOME", "Where the folders below lie instead of ~/.cache and ~/.local/state."},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kFiles = {{
    {"~/.cache/huggingface/hub", "Models from the Hugging Face Hub, shared with its other programs."},
    {"~/.local/state/carat/history", "The lines typed in `carat chat`, unless `--no-history` is given."},
    {"PREFIX/share/carat/models/demo-e-q8_0.gguf",
     "The demo model, used where no model is named. PREFIX is where carat is installed."},
}};

// No `default`: a new status without a meaning does not compile.
std::string_view meaning(ExitCode status) {
  switch (status) {
    case kSuccess:
      return "Success.";
    case kBadUsage:
      return "A flag or a request cannot be carried out as given.";
    case kFileAccess:
      return "A file or stream cannot be opened, read or written, or was truncated while in use.";
    case kDamagedFile:
      return "The content of a file is damaged.";
    case kNotSupported:
      return "Valid, but not something this build can do.";
    case kNoMemory:
      return "Out of host or device memory.";
    case kDeviceFailure:
      return "A GPU reported an error.";
    case kNonFiniteResult:
      return "The model produced NaN or infinity.";
    case kAnswerCutOff:
      return "The answer was cut off at -n.";
    case kThoughtBudgetSpent:
      return "The thoughts ended at --think-budget, or -n was reached inside them.";
    case kContextIsFull:
      return "The answer was cut off: the context is full.";
    case kLoopDetected:
      return "The answer repeated itself and was stopped.";
    case kCallsPending:
      return "The model waits for the results of its tool calls.";
    case kLinesFailed:
      return "A batch is done, and some of its lines failed.";
    case kInternalError:
      return "A mistake in carat itself; please report it.";
    case kStopped:
      return "Stopped by Ctrl-C or SIGTERM.";
  }
  return "";
}

// ---- roff ----

// Text as roff prints it unchanged: the characters it would take for typography or for requests are named. Every - is a
// minus sign, as it is typed, so that flags can be searched for and copied.
std::string roff(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    const char c = text[0];
    if (length > 1) {
      auto code = static_cast<uint32_t>(static_cast<unsigned char>(c)) & (0x7Fu >> length);
      for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
      result += fmt::format("\\[u{:04X}]", code);
    } else if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c == '^') {
      result += "\\(ha";
    } else if (c == '~') {
      result += "\\(ti";
    } else if (c == '"') {
      result += "\\(dq";
    } else {
      result += c;
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// A line of text; what stands in `...` is bold. It must not begin like a request.
std::string line(std::string_view text) {
  std::string result;
  bool is_code = false;
  while (true) {
    const size_t tick = text.find('`');
    const std::string_view part = text.substr(0, tick);
    result += is_code ? bold(part) : roff(part);
    if (tick == std::string_view::npos) break;
    text.remove_prefix(tick + 1);
    is_code = !is_code;
  }
  if (result.starts_with('.')) result.insert(0, "\\&");
  return result + "\n";
}

std::string paragraphs(std::string_view text) {
  std::string result;
  while (true) {
    const size_t end = text.find("\n\n");
    result += line(text.substr(0, end));
    if (end == std::string_view::npos) return result;
    result += ".PP\n";
    text.remove_prefix(end + 2);
  }
}

std::string item(std::string_view heading, std::string_view text) {
  return fmt::format(".TP\n{}\n{}", heading, line(text));
}

// The alternatives of an argument: words as they are typed, what stands for a value in italics.
std::string argument_text(const ArgumentDescription& argument) {
  return argument.choices.empty() ? italic(argument.form) : roff(argument.form);
}

std::string option_item(const OptionDescription& option) {
  std::string heading;
  for (const std::string& name : option.names) heading += (heading.empty() ? "" : ", ") + bold(name);
  if (option.takes_argument()) heading += " " + argument_text(option.argument);
  std::string help = option.help;
  if (!option.default_value.empty()) help += fmt::format(" (default: {})", option.default_value);
  if (!option.environment.empty()) help += fmt::format("; also the variable {}", option.environment);
  return item(heading, help);
}

std::string usage(const CommandDescription& command) {
  std::string text = bold("carat " + command.name) + " [" + italic("flags") + "]";
  for (const PositionalDescription& positional : command.positionals) {
    const std::string name = italic(positional.name) + (positional.repeatable ? " ..." : "");
    text += positional.required ? " " + name : " [" + name + "]";
  }
  return text;
}

std::string command_section(const CommandDescription& command) {
  std::string text =
      fmt::format(".SS carat {}\n{}\n.PP\n{}", roff(command.name), usage(command), line(command.help + "."));
  for (const PositionalDescription& positional : command.positionals) {
    std::string heading = italic(positional.name);
    if (!positional.argument.choices.empty()) heading += " " + roff(positional.argument.form);
    text += item(heading, positional.help);
  }
  for (const OptionDescription& option : command.options) text += option_item(option);
  return text;
}

std::string exit_status_section() {
  std::string text = ".SH EXIT STATUS\n";
  for (int status = 0; status < 256; ++status) {
    const std::string_view words = meaning(static_cast<ExitCode>(status));
    if (!words.empty()) text += item(bold(std::to_string(status)), words);
  }
  return text;
}

// Those that stand in for a flag, as the flags say, then the others.
std::string environment_section(const AppDescription& app) {
  std::string text = ".SH ENVIRONMENT\n";
  std::vector<std::string> seen;
  for (const CommandDescription& command : app.commands) {
    for (const OptionDescription& option : command.options) {
      if (option.environment.empty() || std::find(seen.begin(), seen.end(), option.environment) != seen.end()) continue;
      seen.push_back(option.environment);
      text += item(bold(option.environment), fmt::format("Stands in for `{}`.", option.names.back()));
    }
  }
  for (const auto& [name, words] : kVariables) text += item(bold(name), words);
  return text;
}

std::string man_page(const AppDescription& app) {
  std::string text = fmt::format(".TH CARAT 1 {} \"carat {}\" \"User Commands\"\n", kDate, CARAT_VERSION);
  text += ".SH NAME\ncarat \\- fast, exact inference of Gemma 4 models\n.SH SYNOPSIS\n";
  text += fmt::format("{} {} [{}]\n", bold("carat"), italic("command"), italic("flags"));
  text += ".SH DESCRIPTION\n" + paragraphs(kDescription);
  for (const OptionDescription& option : app.program.options) text += option_item(option);
  text += ".SH COMMANDS\n";
  for (const CommandDescription& command : app.commands) text += command_section(command);
  text += exit_status_section() + environment_section(app) + ".SH FILES\n";
  for (const auto& [path, words] : kFiles) text += item(italic(path), words);
  text += ".SH EXAMPLES\n";
  for (const auto& [command, words] : kExamples) text += item(bold(command), words);
  return text + ".SH SEE ALSO\n" +
         line(
             "`carat COMMAND --help` lists the flags of one command. The folder docs of the sources has the manual, "
             "the chat format and the figures for speed and exactness.");
}

}  // namespace

void add_man_command(CLI::App& app) {
  app.add_subcommand("man", "Print the manual page carat(1); `carat man | man -l -` shows it")->callback([&app] {
    write_stdout(man_page(describe_app(app)));
  });
}

}  // namespace carat::cli
