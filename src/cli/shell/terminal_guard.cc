#include "cli/shell/terminal_guard.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

namespace carat::cli {

namespace {

constexpr std::string_view kPasteBracketsOn = "\x1b[?2004h";
constexpr std::string_view kPasteBracketsOff = "\x1b[?2004l";

// A signal handler can reach nothing but objects of static storage. `saved` is written before `is_active` is set.
struct Guarded {
  termios saved = {};
  bool has_saved = false;
  int input = -1;
  int output = -1;
};
Guarded guarded;
std::atomic<bool> is_active{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void send(std::string_view sequence) noexcept {
  if (guarded.output < 0) return;
  // A terminal that is gone needs no restoring.
  [[maybe_unused]] const ssize_t written = ::write(guarded.output, sequence.data(), sequence.size());
}

}  // namespace

TerminalGuard::TerminalGuard(int input, int output) {
  guarded.input = input;
  guarded.output = output;
  guarded.has_saved = ::tcgetattr(input, &guarded.saved) == 0;
  is_active.store(true);
  send(kPasteBracketsOn);
}

TerminalGuard::~TerminalGuard() { restore_terminal(); }

void TerminalGuard::pause() { send(kPasteBracketsOff); }
void TerminalGuard::resume() { send(kPasteBracketsOn); }

SilentKeys::SilentKeys(int input) {
  guarded.input = input;
  guarded.output = -1;  // no brackets to turn off
  guarded.has_saved = ::tcgetattr(input, &guarded.saved) == 0;
  if (!guarded.has_saved) return;
  is_active.store(true);
  termios silent = guarded.saved;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  ::tcsetattr(input, TCSANOW, &silent);
}

SilentKeys::~SilentKeys() { restore_terminal(); }

void restore_terminal() noexcept {
  if (!is_active.exchange(false)) return;
  if (guarded.has_saved) ::tcsetattr(guarded.input, TCSANOW, &guarded.saved);
  send(kPasteBracketsOff);
}

}  // namespace carat::cli
