#include "exec/cuda/weights/product_path.h"

#include <algorithm>

#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_tiles.h"
#include "exec/cuda/kernels/mmq/mmq_shape.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

// There is one, and `reads` holds for each.
template <typename Reads>
bool reads_all(const LayerGroup& group, const Reads& reads) {
  return !group.empty() && std::all_of(group.begin(), group.end(), [&](const model::Matrix* m) { return reads(*m); });
}

}  // namespace

bool fp8_reads(const LayerGroup& group) {
  return is_dense(group.kind()) &&
         reads_all(group, [](const model::Matrix& m) { return m.rows % kFp8Unit == 0 && fp8_columns_fit(m.cols); });
}

bool mmq_reads(const LayerGroup& group) {
  return reads_all(group, [](const model::Matrix& m) { return mmq_supports(packing_of(m.format)); });
}

bool wgmma_reads(const LayerGroup& group) {
  if (group.kind() == GroupKind::kExpertGateUp && !group.empty()) {
    // One launch reads the gate and the up rows of an expert.
    const uint64_t rows_of_gate = group.size() == 1 ? group[0].rows / 2 : group[0].rows;
    const Packing packing = packing_of(group[0].format);
    return wgmma_reads(packing, rows_of_gate, group[0].cols) && packing == packing_of(group[group.size() - 1].format);
  }
  return reads_all(group, [](const model::Matrix& m) { return wgmma_reads(packing_of(m.format), m.rows, m.cols); });
}

}  // namespace carat::cuda
