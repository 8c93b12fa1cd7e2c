#pragma once

// Which product kernel serves which weight format. Included after one of the simd_*.h headers.

#include "exec/cpu/matmul/direct_matmul.h"
#include "exec/cpu/matmul/float_matmul.h"
#include "exec/cpu/matmul/panel_codebook_formats.h"
#include "exec/cpu/matmul/panel_ternary_formats.h"
#include "quant/format.h"

namespace carat::exec::cpu {
namespace {

// kDirect: one and two rows without a panel.
template <typename Format, bool kDirect>
MatmulTile kernel_of(bool int16) {
  if constexpr (kDirect) {
    return int16 ? matmul_quantised<Format, true> : matmul_quantised<Format, false>;
  } else {
    return int16 ? matmul_panel<Format, true> : matmul_panel<Format, false>;
  }
}

// The same for formats that are seldom more than a part of a file: every direct kernel costs a second to compile, so
// there is one, of one row and activations of 15 bits, which are the default.
template <typename Format, bool kDirect>
MatmulTile single_kernel_of(bool int16) {
  if (!int16) return matmul_panel<Format, false>;
  return kDirect ? matmul_single<Format, true> : matmul_panel<Format, true>;
}

template <bool kDirect>
MatmulTile find_matmul(quant::Format format, bool int16) {
  switch (format) {
    case quant::Format::kF32:
      return matmul_float<WeightsF32>;
    case quant::Format::kF16:
      return matmul_float<WeightsF16>;
    case quant::Format::kBF16:
      return matmul_float<WeightsBF16>;
    case quant::Format::kQ8_0:
      return kernel_of<PanelQ8_0, kDirect>(int16);
    case quant::Format::kQ4_0:
      return kernel_of<PanelQ4_0, kDirect>(int16);
    case quant::Format::kQ4_1:
      return kernel_of<PanelQ4_1, kDirect>(int16);
    case quant::Format::kQ5_0:
      return kernel_of<PanelQ5_0, kDirect>(int16);
    case quant::Format::kQ5_1:
      return kernel_of<PanelQ5_1, kDirect>(int16);
    case quant::Format::kIQ4_NL:
      return kernel_of<PanelIQ4_NL, kDirect>(int16);
    case quant::Format::kMXFP4:
      return kernel_of<PanelMXFP4, kDirect>(int16);
    case quant::Format::kQ2_K:
      return kernel_of<PanelQ2_K, kDirect>(int16);
    case quant::Format::kQ3_K:
      return kernel_of<PanelQ3_K, kDirect>(int16);
    case quant::Format::kQ4_K:
      return kernel_of<PanelQ4_K, kDirect>(int16);
    case quant::Format::kQ5_K:
      return kernel_of<PanelQ5_K, kDirect>(int16);
    case quant::Format::kQ6_K:
      return kernel_of<PanelQ6_K, kDirect>(int16);
    case quant::Format::kIQ4_XS:
      return kernel_of<PanelIQ4_XS, kDirect>(int16);
    case quant::Format::kIQ3_S:
      return single_kernel_of<PanelIQ3_S, kDirect>(int16);
    case quant::Format::kIQ3_XXS:
      return single_kernel_of<PanelIQ3_XXS, kDirect>(int16);
    case quant::Format::kIQ2_S:
      return single_kernel_of<PanelIQ2_S, kDirect>(int16);
    case quant::Format::kIQ2_XS:
      return single_kernel_of<PanelIQ2_XS, kDirect>(int16);
    case quant::Format::kIQ2_XXS:
      return single_kernel_of<PanelIQ2_XXS, kDirect>(int16);
    case quant::Format::kIQ1_M:
      return single_kernel_of<PanelIQ1_M, kDirect>(int16);
    case quant::Format::kIQ1_S:
      return single_kernel_of<PanelIQ1_S, kDirect>(int16);
    case quant::Format::kTQ2_0:
      return single_kernel_of<PanelTQ2_0, kDirect>(int16);
    case quant::Format::kTQ1_0:
      return single_kernel_of<PanelTQ1_0, kDirect>(int16);
    case quant::Format::kNVFP4:
      return single_kernel_of<PanelNVFP4, kDirect>(int16);
    case quant::Format::kQ2_0:
      return single_kernel_of<PanelQ2_0, kDirect>(int16);
    case quant::Format::kQ1_0:
      return single_kernel_of<PanelQ1_0, kDirect>(int16);
  }
  return nullptr;
}

}  // namespace
}  // namespace carat::exec::cpu
