#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace carat::cli {

// $XDG_STATE_HOME/carat/history, or ~/.local/state/carat/history; empty where there is no home either.
std::string default_history_file();

// What was typed before, kept in a file that only its owner can read: one entry a line, with newlines as \n and
// backslashes as \\. The file stays below a megabyte and a thousand entries or so. Several chats may add to it at the
// same time.
//
// A file that cannot be read or written costs a warning, once, and the entries of this chat are still there.
class InputHistory {
 public:
  using Warn = std::function<void(std::string_view)>;

  // An empty file name: nothing is kept.
  InputHistory(std::string file, Warn warn);

  // Oldest first.
  const std::vector<std::string>& entries() const { return entries_; }

  // Nothing happens for an empty entry and for the same one again; returns whether it was added.
  bool add(std::string_view entry);

 private:
  void load();
  void append_to_file(const std::string& entry);
  void rewrite_file();
  void give_up(std::string_view doing, int error);

  std::string file_;
  Warn warn_;
  std::vector<std::string> entries_;
};

}  // namespace carat::cli
