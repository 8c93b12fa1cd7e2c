#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"

#include "base/error.h"
#include "exec/cuda/device/tensor_map.h"

namespace carat::cuda {

uint32_t warpgroup_attention_tile_rows(const AttentionShape& shape) {
  check_attention_shape(shape);
  return kWarpgroupTileRows / (shape.H / shape.Hkv);
}

void attention_prefill_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch) {
  check_attention_shape(arguments.shape);
  CARAT_CHECK(warpgroup_attention_supports(arguments.shape, arguments.kv.quantised()));
  CARAT_CHECK(arguments.kv.cells > 0 && arguments.kv.cells % kKvTile == 0);
  const auto launcher = arguments.shape.hd == 256 ? launch_prefill_256_wgmma : launch_prefill_512_wgmma;
  launcher(arguments, launch);
}

CUtensorMap wgmma_cache_map(const __half* base, uint32_t hd, uint32_t box_keys) {
  // The cache does not say how many sequences it has; the kernels read only rows of the tiles' sequences.
  constexpr uint64_t kAllRows = uint64_t{1} << 31;
  return make_tensor_map(base, {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, hd, kAllRows, uint64_t{hd} * 2, 64, box_keys, true});
}

}  // namespace carat::cuda
