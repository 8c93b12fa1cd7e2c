// Prompt attention over chosen key blocks: the loop of attention_prefill.cuh with a list instead of a range.
#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_launch.h"

namespace carat::cuda {
namespace {

template <typename Choice>
__global__ void __launch_bounds__(AttentionLayout<Choice::kTile>::kThreads, 1)
    attention_sparse_kernel(const __grid_constant__ SparseArguments s) {
  constexpr AttentionTile T = Choice::kTile;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  wait_for_predecessor();
  release_successor();

  const PrefillArguments& a = s.prefill;
  const uint32_t kv_head = blockIdx.x % a.shape.Hkv;
  const uint32_t index = a.tile_count - 1 - blockIdx.x / a.shape.Hkv;
  const Segment segment = a.tiles[index];
  if (segment.count == 0) return;
  RowPositions<T> rows = positions_of<T>(a.shape, segment);
  const uint64_t list = static_cast<uint64_t>(index) * a.shape.Hkv + kv_head;
  const SelectedKeys keys{0, rows.highest + 1, s.scratch.blocks + list * s.scratch.list_length,
                          s.scratch.counts[list] * (kSparseBlock / T.bn)};
  attend_tile<T>(a, segment, kv_head, rows, keys, shared_memory);
}

template <typename Choice>
void launch_sparse_tile(const SparseArguments& arguments, const LaunchConfig& launch) {
  using L = AttentionLayout<Choice::kTile>;
  const auto kernel = attention_sparse_kernel<Choice>;
  allow_shared_memory(kernel, L::kSharedBytes, "sparse prompt attention");
  launch_kernel("sparse prompt attention", kernel, dim3(arguments.prefill.tile_count * arguments.prefill.shape.Hkv),
                dim3(L::kThreads), L::kSharedBytes, launch, arguments);
}

}  // namespace

void launch_sparse_prefill(const SparseArguments& arguments, const LaunchConfig& launch) {
  if (arguments.prefill.kv.quantised()) {
    launch_sparse_tile<Prefill512WideQ8>(arguments, launch);
  } else {
    launch_sparse_tile<Prefill512Wide>(arguments, launch);
  }
}

}  // namespace carat::cuda
