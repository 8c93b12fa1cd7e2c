#include <memory>
#include <string>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/shell/converse.h"

namespace carat::cli {

namespace {

struct RunFlags {
  ChatFlags chat;
  TalkFlags talk;
  std::string prompt;
  std::string prompt_file;
  bool has_prompt = false;
  bool raw = false;
};

void check_raw(const ChatFlags& chat) {
  if (chat.think || chat.think_budget || !chat.system.empty() || !chat.tools.empty()) {
    fail(ErrorCode::kBadArgument,
         "--raw takes the prompt as it is; --think, --think-budget, --system and --tools need the chat format");
  }
}

void run(RunFlags& flags) {
  if (flags.has_prompt && !flags.prompt_file.empty()) fail(ErrorCode::kBadArgument, "give either -p or -f, not both");
  const bool once = flags.has_prompt || !flags.prompt_file.empty();
  const std::string prompt = flags.prompt_file.empty() ? flags.prompt : read_text_file(flags.prompt_file);
  if (flags.raw) {
    check_raw(flags.chat);
    const engine::TurnEnding ending = once ? complete_once(flags.chat, prompt) : complete_lines(flags.chat);
    // A raw text has no end of its own: reaching -n is what was asked for.
    return exit_with(ending == engine::TurnEnding::kLength ? engine::TurnEnding::kComplete : ending);
  }
  flags.talk.commands = false;  // a line of a script that begins with a slash is a line
  exit_with(once ? answer_once(flags.chat, flags.talk, prompt) : converse(flags.chat, flags.talk));
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  flags->talk.raw_output = true;
  CLI::App* command = app.add_subcommand("run", "Answer one prompt, or line after line from standard input");
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "the question");
  command->add_option("-f,--file", flags->prompt_file, "read the question from a file; - is standard input")
      ->type_name("FILE");
  command->add_flag("--raw", flags->raw, "no chat format: the text is the whole prompt, special tokens included");
  flags->chat.add_to(*command);
  flags->talk.add_to(*command);
  command->callback([flags, prompt] {
    flags->has_prompt = prompt->count() > 0;
    run(*flags);
  });
}

}  // namespace carat::cli
