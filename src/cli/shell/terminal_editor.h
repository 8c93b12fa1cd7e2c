#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/line_editor.h"

namespace carat::cli {

// A line edited on the terminal of standard input, with libedit.
class TerminalEditor {
 public:
  using Complete = std::function<std::vector<std::string>(std::string_view line, size_t cursor)>;

  // Whether this build has libedit.
  static bool is_available();
  // Null in a build without libedit, and where standard input or `output` is no terminal that an editor can work with.
  static std::unique_ptr<TerminalEditor> open(int output, Complete complete);

  virtual ~TerminalEditor() = default;
  virtual LineEditor::Read read(std::string_view prompt, std::string& line) = 0;
  // Adds to what the arrow keys and Ctrl-R find.
  virtual void remember(const std::string& entry) = 0;
};

// What Tab does with the candidates for `word`: the text to add to it, which all of them share, and those to choose
// from when that adds nothing.
struct Completion {
  std::string addition;
  std::vector<std::string> choices;
};
Completion complete_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace carat::cli
