#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/session.h"
#include "cli/view/turn_printer.h"

namespace carat::cli {

// What the turns of a session came to.
struct SessionTotals {
  uint32_t turns = 0;
  uint64_t prompt_reused = 0;
  uint64_t prompt_new = 0;
  uint64_t generated = 0;
  uint64_t decode_passes = 0;
  uint64_t decode_tokens = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  double prompt_seconds = 0.0;
  double decode_seconds = 0.0;
  uint32_t context_used = 0;  // after the last turn

  void add(const chat::TurnReport& report);
};

enum class CommandEffect { kDone, kRegenerate, kLeave };

// The lines of a chat that begin with a slash. Words go to standard error, where they do not mix with answers.
class SlashCommands {
 public:
  SlashCommands(chat::ChatSession& session, TurnPrinter& printer, SessionTotals& totals);

  static bool is_command(std::string_view line) { return line.starts_with('/'); }
  // Throws kBadArgument or kIo for a command that is unknown or cannot be carried out; nothing has changed then.
  CommandEffect carry_out(std::string_view line);
  // The words that may stand at the cursor.
  static std::vector<std::string> complete(std::string_view line, size_t cursor);

 private:
  void help() const;
  void clear();
  void system(std::string_view text);
  void think(std::string_view word);
  void tools(std::string_view file);
  void set(std::string_view words);
  void show_settings() const;
  void save(std::string_view file) const;
  void load(std::string_view file);
  void stats() const;

  chat::ChatSession& session_;
  TurnPrinter& printer_;
  SessionTotals& totals_;
};

}  // namespace carat::cli
