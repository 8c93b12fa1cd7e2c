#pragma once

// Which product kernel serves which weight format. Included after one of the simd_*.h headers.

#include "exec/cpu/float_matmul.h"
#include "exec/cpu/panel_matmul.h"
#include "quant/format.h"

namespace carat::exec::cpu {
namespace {

template <typename Format>
MatmulTile panel_kernel(bool int16) {
  return int16 ? matmul_panel<Format, true> : matmul_panel<Format, false>;
}

inline MatmulTile find_matmul(quant::Format format, bool int16) {
  switch (format) {
    case quant::Format::kF32:
      return matmul_float<WeightsF32>;
    case quant::Format::kF16:
      return matmul_float<WeightsF16>;
    case quant::Format::kBF16:
      return matmul_float<WeightsBF16>;
    case quant::Format::kQ8_0:
      return panel_kernel<PanelQ8_0>(int16);
    case quant::Format::kQ4_0:
      return panel_kernel<PanelQ4_0>(int16);
    case quant::Format::kQ4_1:
      return panel_kernel<PanelQ4_1>(int16);
    case quant::Format::kQ5_0:
      return panel_kernel<PanelQ5_0>(int16);
    case quant::Format::kQ5_1:
      return panel_kernel<PanelQ5_1>(int16);
    case quant::Format::kIQ4_NL:
      return panel_kernel<PanelIQ4_NL>(int16);
    case quant::Format::kMXFP4:
      return panel_kernel<PanelMXFP4>(int16);
    case quant::Format::kQ2_K:
      return panel_kernel<PanelQ2_K>(int16);
    case quant::Format::kQ3_K:
      return panel_kernel<PanelQ3_K>(int16);
    case quant::Format::kQ4_K:
      return panel_kernel<PanelQ4_K>(int16);
    case quant::Format::kQ5_K:
      return panel_kernel<PanelQ5_K>(int16);
    case quant::Format::kQ6_K:
      return panel_kernel<PanelQ6_K>(int16);
  }
  return nullptr;
}

}  // namespace
}  // namespace carat::exec::cpu
