#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carat::server {

// What the kernel knows of a process.
struct ProcessFigures {
  double cpu_seconds = 0.0;    // user and system
  double start_seconds = 0.0;  // Unix time
  uint64_t virtual_bytes = 0, resident_bytes = 0;
  uint64_t threads = 0;
  uint64_t open_files = 0;
  std::optional<uint64_t> most_files;  // none: unlimited
};

// Of this process, from /proc/self; nothing where it cannot be read.
std::optional<ProcessFigures> read_process_figures();

// The same from texts of /proc: /proc/self/stat and /proc/stat (for the time the machine was started). Everything but
// what files are open. Nothing where a text is not as expected.
std::optional<ProcessFigures> process_figures_of(std::string_view self_stat, std::string_view machine_stat,
                                                 double ticks_per_second, uint64_t page_bytes);

}  // namespace carat::server
