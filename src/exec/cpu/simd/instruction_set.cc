#include "exec/cpu/simd/instruction_set.h"

#include <array>
#include <string>
#include <string_view>

#include "base/error.h"

namespace carat::exec::cpu {
namespace {

struct UsableKernels {
  std::array<const KernelTable*, 3> tables = {};
  std::array<KernelTable, 3> panel_tables = {};  // the same with few rows over panels, too
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
    for (size_t i = 0; i < count; ++i) {
      panel_tables[i] = *tables[i];
      panel_tables[i].find_matmul = tables[i]->find_panel_matmul;
    }
  }
};

const UsableKernels& usable_tables() {
  static const UsableKernels usable;
  return usable;
}

}  // namespace

std::span<const KernelTable* const> usable_kernels() { return {usable_tables().tables.data(), usable_tables().count}; }

const KernelTable& choose_kernels(const KernelChoices& choices) {
  const std::span<const KernelTable* const> usable = usable_kernels();
  const auto table = [&](size_t index) -> const KernelTable& {
    const KernelTable& chosen = *usable[index];
    if (choices.find("decode") == "panel") return usable_tables().panel_tables[index];
    if (choices.find("decode") == "direct" && chosen.find_matmul == chosen.find_panel_matmul) {
      fail(ErrorCode::kUnsupported, "--kernels decode=direct: dot={} has no such kernels; leave one of the two out",
           chosen.name);
    }
    return chosen;
  };
  const std::optional<std::string_view> wanted = choices.find("dot");
  if (!wanted) return table(usable.size() - 1);
  for (size_t i = 0; i < usable.size(); ++i) {
    if (*wanted == usable[i]->name) return table(i);
  }
  std::string names;
  for (const KernelTable* one : usable) names += fmt::format("{}{}", names.empty() ? "" : ", ", one->name);
  fail(ErrorCode::kUnsupported, "--kernels dot={}: this machine lacks the instructions it needs; usable here: {}",
       *wanted, names);
}

}  // namespace carat::exec::cpu
