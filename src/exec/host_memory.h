#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carat::exec {

// Bytes of memory this process could still take without driving the machine (or its control group) out of memory;
// nullopt where the system does not say.
std::optional<uint64_t> available_host_memory();

// Throws kOutOfMemory with the needed and the available bytes when `needed` is more than there is. Linux grants memory
// it does not have and ends the process later, so asking first is the only way to a clear error.
// what: "the cache of 2 sequences of 4096 positions"; remedy: "a smaller context (-c) helps".
void check_host_memory(uint64_t needed, std::string_view what, std::string_view remedy);

}  // namespace carat::exec
