#include "model/writing/preset.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace carat::model {

namespace {

constexpr uint32_t kTinyVocabulary = 1024;
constexpr uint32_t kTinyWindow = 16;
constexpr uint32_t kTinyContext = 8192;

// clang-format off
constexpr Preset kPresets[] = {
    {.name = "e2b", .L = 35, .n_kv = 15, .period = 5, .d = 1536, .H = 8, .Hkv_sliding = 1, .Hkv_global = 1,
     .hd_sliding = 256, .hd_global = 512, .F = 6144, .F_shared = 12288, .W = 512, .P = 256, .V = 262144,
     .context = 131072, .unused_kv = true},
    {.name = "e4b", .L = 42, .n_kv = 24, .period = 6, .d = 2560, .H = 8, .Hkv_sliding = 2, .Hkv_global = 2,
     .hd_sliding = 256, .hd_global = 512, .F = 10240, .F_shared = 10240, .W = 512, .P = 256, .V = 262144,
     .context = 131072, .unused_kv = true},
    {.name = "12b", .L = 48, .n_kv = 48, .period = 6, .d = 3840, .H = 16, .Hkv_sliding = 8, .Hkv_global = 1,
     .hd_sliding = 256, .hd_global = 512, .F = 15360, .F_shared = 15360, .W = 1024, .P = 0, .V = 262144,
     .context = 262144, .v_from_k = true, .suppresses_media_ends = true},
    {.name = "26b-a4b", .L = 30, .n_kv = 30, .period = 6, .d = 2816, .H = 16, .Hkv_sliding = 8, .Hkv_global = 2,
     .hd_sliding = 256, .hd_global = 512, .F = 2112, .F_shared = 2112, .W = 1024, .P = 0, .V = 262144,
     .context = 262144, .experts = 128, .experts_used = 8, .F_expert = 704, .v_from_k = true},
    {.name = "31b", .L = 60, .n_kv = 60, .period = 6, .d = 5376, .H = 32, .Hkv_sliding = 16, .Hkv_global = 4,
     .hd_sliding = 256, .hd_global = 512, .F = 21504, .F_shared = 21504, .W = 1024, .P = 0, .V = 262144,
     .context = 262144, .v_from_k = true},

    {.name = "tiny-e2b", .L = 7, .n_kv = 3, .period = 3, .d = 256, .H = 4, .Hkv_sliding = 1, .Hkv_global = 1,
     .hd_sliding = 256, .hd_global = 512, .F = 512, .F_shared = 1024, .W = kTinyWindow, .P = 256,
     .V = kTinyVocabulary, .context = kTinyContext, .unused_kv = true},
    // Without the unused tensors, as files converted from re-saved checkpoints are.
    {.name = "tiny-e4b", .L = 7, .n_kv = 4, .period = 3, .d = 256, .H = 4, .Hkv_sliding = 2, .Hkv_global = 2,
     .hd_sliding = 256, .hd_global = 512, .F = 768, .F_shared = 768, .W = kTinyWindow, .P = 256,
     .V = kTinyVocabulary, .context = kTinyContext},
    {.name = "tiny-12b", .L = 6, .n_kv = 6, .period = 3, .d = 256, .H = 4, .Hkv_sliding = 2, .Hkv_global = 1,
     .hd_sliding = 256, .hd_global = 512, .F = 768, .F_shared = 768, .W = kTinyWindow, .P = 0,
     .V = kTinyVocabulary, .context = kTinyContext, .v_from_k = true, .suppresses_media_ends = true},
    {.name = "tiny-26b-a4b", .L = 6, .n_kv = 6, .period = 3, .d = 256, .H = 4, .Hkv_sliding = 4, .Hkv_global = 2,
     .hd_sliding = 256, .hd_global = 512, .F = 288, .F_shared = 288, .W = kTinyWindow, .P = 0,
     .V = kTinyVocabulary, .context = kTinyContext, .experts = 16, .experts_used = 4, .F_expert = 96,
     .v_from_k = true},
    {.name = "tiny-31b", .L = 6, .n_kv = 6, .period = 3, .d = 512, .H = 8, .Hkv_sliding = 4, .Hkv_global = 2,
     .hd_sliding = 256, .hd_global = 512, .F = 1024, .F_shared = 1024, .W = kTinyWindow, .P = 0,
     .V = kTinyVocabulary, .context = kTinyContext, .v_from_k = true},
};
// clang-format on

}  // namespace

bool Preset::is_sliding(uint32_t layer) const {
  const uint32_t end = owns_kv(layer) ? n_kv : L;
  return (end - 1 - layer) % period != 0;
}

void Preset::shorten(uint32_t layers) {
  if (layers < 2 || layers > L) {
    fail(ErrorCode::kBadArgument, "{} layers of {} were asked for; 2 to {} are possible", layers, name, L);
  }
  if (n_kv < L && layers > 2) {
    // At least a sliding and a global owner, at least one layer that shares.
    const uint32_t owners = (layers * n_kv + L / 2) / L;
    n_kv = std::clamp(owners, 2u, layers - 1);
  } else {
    n_kv = layers;
  }
  L = layers;
}

Preset find_preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets)) {
    fail(ErrorCode::kBadArgument, "unknown preset '{}'; known: {}", name, fmt::join(preset_names(), ", "));
  }
  return *found;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

}  // namespace carat::model
