#include "cli/interrupts.h"

#include <unistd.h>
#include <csignal>

#include "cli/exit_codes.h"
#include "cli/shell/terminal_guard.h"

namespace carat::cli {

namespace {
// A signal handler can reach nothing but objects of static storage; lock-free atomics are what it may touch.
std::atomic<bool> stop_requested{false};
std::atomic<bool> stoppable{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (!stop_requested.load()) first_signal.store(signal);
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

int interrupting_signal() { return first_signal; }

Stoppable::Stoppable() {
  stop_requested.store(false);
  stoppable.store(true);
}

Stoppable::~Stoppable() { stoppable.store(false); }

}  // namespace carat::cli
