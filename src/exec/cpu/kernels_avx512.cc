#include "exec/cpu/simd/simd_avx512.h"
// The vectors come first: the generic kernels are written in their words.
#include "exec/cpu/attention_kernel.h"
#include "exec/cpu/simd/vector_math.h"

namespace carat::exec::cpu {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = {
      .name = "avx512",
      .lanes = kLanes,
      .tile_rows = kTileRows,
      .int16_layout = kInt16Layout,
      .matmul_scratch = matmul_scratch_avx512,
      .find_matmul = find_matmul_avx512,
      .find_panel_matmul = find_panel_matmul_avx512,
      .quantise_tile = quantise_tile,
      .rms_norm = rms_norm,
      .add_rms_norm = add_rms_norm,
      .gelu_multiply = gelu_multiply,
      .scale = scale,
      .add_scaled = add_scaled,
      .rotate = rotate,
      .to_halves = to_halves,
      .softcap = softcap,
      .softmax = softmax,
      .attend = attend,
      .merge_span = merge_span,
  };
  return kTable;
}

}  // namespace carat::exec::cpu
