#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/input_history.h"

namespace carat::cli {

class TerminalEditor;

// Reads what a person types, or the lines of a pipe.
//
// On a terminal: editing, history (arrows, Ctrl-R), completion with Tab; Ctrl-C abandons the line, Ctrl-D on an empty
// one ends the input; a pasted text is one input, whatever newlines it has. Without libedit, and where input or output
// is no terminal, lines are read as they are, and Ctrl-C does what it does elsewhere.
//
// An input that begins with """ goes on until a line that ends with """; what stands between them is the input.
// Nothing typed or pasted means anything else: control tokens, backslashes and escapes are text.
class LineEditor {
 public:
  struct Options {
    std::string history_file;  // empty: none
    // What the word before the cursor (back to the last space) may be completed to: whole words. `cursor` is an offset
    // in `line`.
    std::function<std::vector<std::string>(std::string_view line, size_t cursor)> complete;
    std::function<void(std::string_view)> warn;  // about the history; by default to standard error
  };
  enum class Read { kLine, kEnd, kInterrupted };

  explicit LineEditor(Options options);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The prompt may have colours (ESC [ … m); its last character should be a plain space. Nothing is shown where nobody
  // types. Throws kIo when standard input cannot be read.
  Read read(std::string_view prompt, std::string& line);
  // Whether that was between """: then it is no command, whatever it looks like.
  bool was_quoted() const { return was_quoted_; }

  // The answer to a question: without """, and not kept in the history.
  Read ask(std::string_view prompt, std::string& line);

 private:
  Read read_plain(std::string_view prompt, std::string& line);

  InputHistory history_;
  std::unique_ptr<TerminalEditor> editor_;  // null where lines are read as they are
  std::string buffered_;                    // read, but not yet given out
  bool at_end_ = false;
  bool was_quoted_ = false;
};

}  // namespace carat::cli
