#include "exec/cuda/plan/sparse_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace carat::cuda {

namespace {

// Why it cannot be; empty: it can.
std::string unable(const model::Config& config, const GpuFacts& gpu, const exec::KernelChoices& kernels,
                   uint32_t context) {
  for (const model::Layer& layer : config.layers) {
    if (layer.sliding) continue;
    if (!sparse_attention_supports({layer.H, layer.Hkv, layer.hd, 0})) {
      return fmt::format("blk.{} has heads of {}; its kernels are for heads of more than 256", layer.index, layer.hd);
    }
  }
  if (kernels.find("attention") == "small") return "it uses the large tiles, and attention=small was asked for";
  const uint32_t longest = std::max(context, config.context_length);
  if (const uint32_t needed = sparse_attention_shared_memory(longest); needed > gpu.shared_memory) {
    return fmt::format("a context of {} needs {} KB of shared memory in a block and {} has {} KB", longest,
                       needed / 1024, gpu.name, gpu.shared_memory / 1024);
  }
  return "";
}

}  // namespace

std::optional<SparseAttention> choose_sparse_attention(const model::Config& config, const GpuFacts& gpu,
                                                       const exec::KernelChoices& kernels, uint32_t context) {
  if (kernels.find("attention.long") != "sparse") return std::nullopt;
  if (const std::string reason = unable(config, gpu, kernels, context); !reason.empty()) {
    fail(ErrorCode::kBadArgument, "--kernels attention.long=sparse is not possible: {}", reason);
  }
  return SparseAttention{};
}

void SparseBuffers::carve(Carver& carver, const model::Config& config, const SparseAttention& sparse, uint32_t context,
                          uint32_t chunk) {
  uint32_t Hkv = 0, width = 0;
  for (const model::Layer& layer : config.layers) {
    if (layer.sliding) continue;
    Hkv = std::max(Hkv, layer.Hkv);
    width = std::max(width, layer.Hkv * layer.hd);
  }
  pooled_blocks = context / kSparseBlock + 1;
  list_length = sparse_most_blocks(sparse, context);
  pooled = carver.take<__half>(uint64_t{pooled_blocks} * width);
  // No more tiles than rows.
  blocks = carver.take<uint16_t>(uint64_t{chunk} * Hkv * list_length);
  counts = carver.take<uint32_t>(uint64_t{chunk} * Hkv);
}

}  // namespace carat::cuda
