#include "exec/cuda/kernels/mmq/mmq.h"

#include <stdexcept>

#include "exec/cuda/kernels/mmq/mmq_launch.h"

namespace carat::cuda {

namespace {

void dispatch(const MmqProduct& product, uint32_t tile_rows, const LaunchConfig& launch) {
  switch (product.weights[0].packing) {
    case Packing::kQ8:
      return launch_mmq_packing<Packing::kQ8>(product, tile_rows, launch);
    case Packing::kQ4:
      return launch_mmq_packing<Packing::kQ4>(product, tile_rows, launch);
    case Packing::kQ4K:
      return launch_mmq_packing<Packing::kQ4K>(product, tile_rows, launch);
    case Packing::kQ5K:
      return launch_mmq_packing<Packing::kQ5K>(product, tile_rows, launch);
    case Packing::kQ6K:
      return launch_mmq_packing<Packing::kQ6K>(product, tile_rows, launch);
    default:
      throw std::logic_error("internal check failed: mmq of float weights");
  }
}

}  // namespace

void mmq(const MmqJob& job, uint32_t sm_count, const LaunchConfig& launch, uint32_t tile_rows) {
  if (job.rows == 0) return;
  if (job.parts == 0 || job.parts > kMmqParts || (job.out == nullptr) == (job.out_float == nullptr)) {
    throw std::logic_error("internal check failed: mmq job");
  }
  MmqProduct product{};
  product.x = job.x;
  product.parts = job.parts;
  product.rows = job.rows;
  product.leading = job.leading;
  product.out = job.out;
  product.out_float = job.out_float;
  const PackedView& first = job.part[0].weights;
  product.chunks = mmq_chunks(first.cols);
  for (uint32_t p = 0; p < job.parts; ++p) {
    const PackedView& weights = job.part[p].weights;
    if (weights.packing != first.packing || weights.cols != first.cols || weights.rows == 0) {
      throw std::logic_error("internal check failed: mmq of different matrices");
    }
    product.weights[p] = weights;
    product.column[p] = job.part[p].column;
    product.first_tile[p] = product.column_tiles;
    product.column_tiles += (weights.rows + kMmqColumns - 1) / kMmqColumns;
  }
  if (tile_rows == 0) {
    tile_rows = mmq_tile_rows(first.packing, job.x.activations, job.rows, product.column_tiles, sm_count);
  }
  product.row_tiles = (job.rows + tile_rows - 1) / tile_rows;
  dispatch(product, tile_rows, launch);
}

}  // namespace carat::cuda
