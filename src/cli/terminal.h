#pragma once

#include <string>
#include <string_view>

#include "base/log.h"

namespace carat::cli {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// Writes to stdout at once; throws kIo when that fails (a full disk, a closed pipe).
void write_stdout(std::string_view text);
void write_stderr(std::string_view text);
// A message of one or more lines, such as "carat: warning: …", to stderr; on a terminal it is broken between words.
void write_message(std::string_view text);

// Messages of the library go to stderr: warnings always, with -v also what it decided and why.
Logger make_logger(bool verbose);

// One line on stderr that is rewritten in place; nothing at all when stderr is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view text);
  void clear();

 private:
  bool enabled_;
  size_t shown_ = 0;
};

}  // namespace carat::cli
