#pragma once

#include <string>

#include "cli/flags/chat_flags.h"
#include "engine/chat_turn.h"

namespace carat::cli {

// How a conversation is shown and typed.
struct TalkFlags {
  bool raw_output = false;  // answers as they are, without Markdown
  std::string colour = "auto";
  bool keep_history = true;  // of the lines typed, in a file
  std::string load = {};     // file of a conversation to go on with; empty: none
  bool commands = true;      // lines from a pipe may be commands too; typed ones always may

  void add_to(CLI::App& command);
};

// Message after message from standard input until its end. A message that cannot be answered does not end the
// conversation when a person is typing. Returns how the last turn ended.
engine::TurnEnding converse(const ChatFlags& chat, const TalkFlags& talk);

// One message, answered on standard output.
engine::TurnEnding answer_once(const ChatFlags& chat, const TalkFlags& talk, const std::string& message);

// One raw text after another, or the one given, each completed on its own.
engine::TurnEnding complete_lines(const ChatFlags& chat);
engine::TurnEnding complete_once(const ChatFlags& chat, const std::string& text);

// Ends the command with the exit status of the ending; returns where that is success.
void exit_with(engine::TurnEnding ending);

}  // namespace carat::cli
