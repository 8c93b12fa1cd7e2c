#include "exec/cuda/kernels/attention/decode/attention_decode.cuh"

namespace carat::cuda {

void launch_decode_256_q8(const DecodeArguments& arguments, uint32_t rows, uint32_t splits,
                          const LaunchConfig& launch) {
  launch_decode_tile<Decode256Q8>(arguments, rows, splits, launch);
}

}  // namespace carat::cuda
