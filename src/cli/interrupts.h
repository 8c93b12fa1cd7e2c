#pragma once

#include <atomic>

namespace carat::cli {

// Makes Ctrl-C (and SIGTERM) end the process at once with status 130, except while a Stoppable exists: then the first
// one sets the flag that ends the work cleanly, and the second one ends the process. Call once, from main().
void install_interrupt_handler();

// Set by the first Ctrl-C during a Stoppable; executors look at it between layers.
const std::atomic<bool>& interrupted();

// The signal that set it: SIGINT or SIGTERM; 0 before.
int interrupting_signal();

// Marks work that can be stopped cleanly. Not nested; the constructor clears the flag.
class Stoppable {
 public:
  Stoppable();
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
};

}  // namespace carat::cli
