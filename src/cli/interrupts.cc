#include "cli/interrupts.h"

#include <unistd.h>
#include <csignal>

#include "cli/chat/terminal_guard.h"
#include "cli/exit_codes.h"

namespace carat::cli {

namespace {
// A signal handler can reach nothing but objects of static storage; lock-free atomics are what it may touch.
std::atomic<bool> stop_requested{false};
std::atomic<bool> stoppable{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int) {
  if (stoppable.load() && !stop_requested.exchange(true)) return;
  restore_terminal();
  _exit(kStopped);
}
}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

const std::atomic<bool>& interrupted() { return stop_requested; }

Stoppable::Stoppable() {
  stop_requested.store(false);
  stoppable.store(true);
}

Stoppable::~Stoppable() { stoppable.store(false); }

}  // namespace carat::cli
