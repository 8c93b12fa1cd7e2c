#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/files.h"

namespace carat::test {

// A program in a terminal, driven as a person would: keys go in, the screen is looked at. The terminal is a tmux server
// of its own, on a socket in a temporary folder, that ends with this object, and also when the test dies.
class TmuxSession {
 public:
  struct Options {
    int columns = 80;
    int rows = 24;
    std::vector<std::string> environment = {};  // NAME=VALUE, for the program
  };
  // Enough for a machine that is busy with other tests; what is waited for usually comes at once.
  static constexpr std::chrono::seconds kPatience{60};

  // Tests skip themselves, with a text that begins with "skipped: ", where this is false.
  static bool is_installed();

  // Starts `command`; its words reach the program as they are. Throws std::runtime_error when tmux fails.
  explicit TmuxSession(const std::vector<std::string>& command) : TmuxSession(command, Options()) {}
  TmuxSession(const std::vector<std::string>& command, const Options& options);
  ~TmuxSession();
  TmuxSession(const TmuxSession&) = delete;
  TmuxSession& operator=(const TmuxSession&) = delete;

  void send_text(std::string_view text);  // as typed, character by character
  void send_key(std::string_view key);    // by tmux's names: Enter, Tab, Up, C-c, C-d, ...
  void send_line(std::string_view text);  // and Enter
  void resize(int columns, int rows);

  // What is visible, without spaces at the ends of lines and empty lines at the end.
  std::string screen() const;
  // The same with all that has scrolled away, and lines that the terminal broke put together again.
  std::string transcript() const;
  // The screen with the escape sequences of its colours.
  std::string coloured_screen() const;
  // All the program has written so far, as it wrote it: what was on the screen for a moment only is there, too.
  std::string written() const;

  // Waits until the transcript satisfies the condition, or contains the text. Fails with the screen in its message.
  testing::AssertionResult wait_until(const std::function<bool(const std::string& transcript)>& condition,
                                      std::string_view what, std::chrono::seconds patience = kPatience) const;
  testing::AssertionResult wait_for(std::string_view text, std::chrono::seconds patience = kPatience) const;
  // Waits until the program has ended and compares its exit status, which is 128 and the number of a signal that ended
  // it.
  testing::AssertionResult ends_with(int exit_status, std::chrono::seconds patience = kPatience) const;
  bool is_running() const;

 private:
  TmuxSession() = default;
  void start_server();
  bool server_answers() const;
  std::string tmux(const std::vector<std::string>& arguments) const;
  std::string capture(const std::vector<std::string>& flags) const;
  std::string status_file() const { return folder_.file("status"); }

  TemporaryDirectory folder_;
  pid_t server_ = -1;
};

}  // namespace carat::test
