#include "exec/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"

namespace carat::exec {
namespace {

// The one number in a file such as memory.max; nullopt when the file is missing or says "max".
std::optional<uint64_t> read_number(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::optional<uint64_t> machine_memory() {
  std::ifstream file("/proc/meminfo");
  std::string label, unit;
  uint64_t kibibytes = 0;
  while (file >> label >> kibibytes && std::getline(file, unit)) {
    if (label == "MemAvailable:") return kibibytes * 1024;
  }
  return std::nullopt;
}

// What the control group of a container has left.
std::optional<uint64_t> group_memory() {
  const std::optional<uint64_t> limit = read_number("/sys/fs/cgroup/memory.max");
  const std::optional<uint64_t> used = read_number("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return std::nullopt;
  return *limit - std::min(*limit, *used);
}

}  // namespace

std::optional<uint64_t> available_host_memory() {
  const std::optional<uint64_t> machine = machine_memory();
  const std::optional<uint64_t> group = group_memory();
  if (machine && group) return std::min(*machine, *group);
  return machine ? machine : group;
}

void check_host_memory(uint64_t needed, std::string_view what, std::string_view remedy) {
  const std::optional<uint64_t> available = available_host_memory();
  if (!available || needed <= *available) return;
  fail(ErrorCode::kOutOfMemory, "{} needs {} MiB of memory but only {} MiB are free: {}", what, needed >> 20,
       *available >> 20, remedy);
}

}  // namespace carat::exec
