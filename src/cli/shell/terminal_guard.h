#pragma once

#include <termios.h>

namespace carat::cli {

// While a line is edited the terminal is in a mode of its own: keys come one by one and pasted text comes in brackets.
// A guard turns the brackets on, and puts everything back when it goes, or when the process is ended by a signal in the
// meantime. One at a time.
class TerminalGuard {
 public:
  TerminalGuard(int input, int output);
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

  // Around a stop by Ctrl-Z.
  void pause();
  void resume();
};

// While an answer is written, keys are not echoed into it; what is typed meanwhile waits for the next line. Ctrl-C
// works as ever. Nothing happens where the input is no terminal. One at a time, and not beside a TerminalGuard.
class SilentKeys {
 public:
  explicit SilentKeys(int input);
  ~SilentKeys();
  SilentKeys(const SilentKeys&) = delete;
  SilentKeys& operator=(const SilentKeys&) = delete;
};

// For the signal handler that ends the process: puts the terminal back if one of these exists. Async-signal-safe.
void restore_terminal() noexcept;

}  // namespace carat::cli
