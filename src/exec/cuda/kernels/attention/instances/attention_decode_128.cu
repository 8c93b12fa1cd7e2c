#include "exec/cuda/kernels/attention/decode/attention_decode.cuh"

namespace carat::cuda {

void launch_decode_128(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch) {
  launch_decode_tile<Decode128>(arguments, rows, splits, launch);
}

}  // namespace carat::cuda
