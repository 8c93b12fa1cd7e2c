#include "exec/cpu/simd/simd_avx512.h"
// The vectors come first: the generic kernels are written in their words.
#include "exec/cpu/matmul/matmul_table.h"

namespace carat::exec::cpu {

MatmulTile find_matmul_avx512(quant::Format format, bool int16) { return find_matmul<true>(format, int16); }
MatmulTile find_panel_matmul_avx512(quant::Format format, bool int16) { return find_matmul<false>(format, int16); }
size_t matmul_scratch_avx512(uint32_t max_rows) { return panel_scratch_bytes(max_rows); }

}  // namespace carat::exec::cpu
