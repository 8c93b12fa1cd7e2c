#include "exec/cuda/kernels/attention/decode/attention_decode.cuh"

namespace carat::cuda {

void launch_decode_128_q8(const DecodeArguments& arguments, uint32_t rows, uint32_t splits,
                          const LaunchConfig& launch) {
  launch_decode_tile<Decode128Q8>(arguments, rows, splits, launch);
}

}  // namespace carat::cuda
