#include <memory>

#include "cli/commands/commands.h"
#include "cli/shell/converse.h"

namespace carat::cli {

namespace {

struct ChatCommandFlags {
  ChatFlags chat;
  TalkFlags talk;
  bool no_history = false;
};

}  // namespace

void add_chat_command(CLI::App& app) {
  auto flags = std::make_shared<ChatCommandFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  flags->chat.add_to(*command);
  flags->talk.add_to(*command);
  command->add_flag("--raw", flags->talk.raw_output, "show answers as they are written, without rendering Markdown");
  command->add_option("--load", flags->talk.load, "go on with a conversation from a file, as /load does")
      ->type_name("FILE");
  command->add_flag("--no-history", flags->no_history, "keep no file of the lines typed");
  command->callback([flags] {
    flags->talk.keep_history = !flags->no_history;
    exit_with(converse(flags->chat, flags->talk));
  });
}

}  // namespace carat::cli
