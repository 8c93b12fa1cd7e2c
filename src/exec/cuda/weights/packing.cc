#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

Packing packing_of(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::kQ8_0:
    case Format::kQ5_0:
    case Format::kIQ4_NL:
      return Packing::kQ8;
    case Format::kQ4_0:
      return Packing::kQ4;
    case Format::kQ4_K:
      return Packing::kQ4K;
    case Format::kQ5_K:
      return Packing::kQ5K;
    case Format::kQ6_K:
      return Packing::kQ6K;
    case Format::kF32:
      return Packing::kF32;
    case Format::kBF16:
    case Format::kMXFP4:
    case Format::kNVFP4:
      return Packing::kBF16;
    default:
      return Packing::kF16;
  }
}

}  // namespace carat::cuda
