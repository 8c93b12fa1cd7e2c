#include "cli/flags/draft_flags.h"

namespace carat::cli {

namespace {

std::string_view mode_name(engine::DraftMode mode) {
  switch (mode) {
    case engine::DraftMode::kOff:
      return "off";
    case engine::DraftMode::kAuto:
      return "auto";
    case engine::DraftMode::kOn:
      break;
  }
  return "on";
}

}  // namespace

void DraftFlags::add_to(CLI::App& command) {
  command
      .add_option("--lookup", mode,
                  "draft what comes next from what was said before: while that is faster, always, or never (default: "
                  "auto, but off on a GPU, where the last bits of a choice depend on it)")
      ->type_name("auto|on|off");
  command.add_option("--lookup-ngram", max_ngram, "most tokens that are looked for in what was said before")
      ->capture_default_str();
  command.add_option("--lookup-draft", max_draft, "most tokens of one draft")->capture_default_str();
}

void DraftFlags::apply(exec::ExecutorOptions& options) const {
  const bool is_off = !mode.empty() && engine::parse_draft_mode(mode) == engine::DraftMode::kOff;
  engine::DraftOptions{engine::DraftMode::kOff, max_ngram, max_draft}.check();
  options.outputs = is_off ? 1 : 1 + max_draft;
}

engine::DraftOptions DraftFlags::options(const exec::Executor& executor, const Logger& log) const {
  engine::DraftOptions options{engine::DraftMode::kOff, max_ngram, max_draft};
  if (!mode.empty()) {
    options.mode = engine::parse_draft_mode(mode);
  } else if (executor.rows_are_independent()) {
    options.mode = engine::DraftMode::kAuto;
  }
  log->info(
      "prompt lookup: {}{}", mode_name(options.mode),
      mode.empty() && options.mode == engine::DraftMode::kOff
          ? fmt::format(" (on {} the text of a seed could depend on it; --lookup auto allows that)", executor.name())
          : std::string());
  return options;
}

}  // namespace carat::cli
