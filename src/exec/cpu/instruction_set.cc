#include "exec/cpu/instruction_set.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"

namespace carat::exec::cpu {
namespace {

struct UsableKernels {
  std::array<const KernelTable*, 3> tables = {};
  size_t count = 0;

  UsableKernels() {
    tables[count++] = &portable_kernels();
#if defined(__x86_64__)
    // The compiler's run-time support also asks whether the operating system saves the wide registers.
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (avx2) tables[count++] = &avx2_kernels();
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx512) tables[count++] = &avx512_kernels();
#endif
  }
};

}  // namespace

std::span<const KernelTable* const> usable_kernels() {
  static const UsableKernels usable;
  return {usable.tables.data(), usable.count};
}

const KernelTable& choose_kernels(const KernelChoices& choices) {
  const std::span<const KernelTable* const> usable = usable_kernels();
  const std::optional<std::string_view> wanted = choices.find("dot");
  if (!wanted) return *usable.back();
  const auto named = [&](const KernelTable* table) { return *wanted == table->name; };
  const auto found = std::find_if(usable.begin(), usable.end(), named);
  if (found != usable.end()) return **found;
  std::string names;
  for (const KernelTable* table : usable) names += fmt::format("{}{}", names.empty() ? "" : ", ", table->name);
  fail(ErrorCode::kUnsupported, "--kernels dot={}: this machine lacks the instructions it needs; usable here: {}",
       *wanted, names);
}

}  // namespace carat::exec::cpu
