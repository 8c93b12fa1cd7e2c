#include "exec/cuda/plan/ple_choice.h"

#include <fmt/format.h>

#include "exec/cuda/kernels/ple/ple_step_shape.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

constexpr uint32_t kLeastCapability = 90;  // clusters of blocks

PackedView shape_of(const model::Matrix& m) {
  PackedView view;
  view.packing = packing_of(m.format);
  view.rows = static_cast<uint32_t>(m.rows);
  view.cols = static_cast<uint32_t>(m.cols);
  return view;
}

}  // namespace

std::string ple_cluster_obstacle(const model::Model& model, const GpuFacts& gpu, GemmKind gemm, uint32_t first_layer) {
  const model::Config& config = model.config();
  if (gpu.capability < kLeastCapability) return "it needs compute capability 9.0";
  if (gemm == GemmKind::kMmq) return "gemm=mmq rounds activations in its own way";
  if (!ple_step_widths(config.d, config.P)) return fmt::format("widths of {} and {}", config.d, config.P);
  for (uint32_t i = first_layer; i < config.L; ++i) {
    const model::LayerWeights& layer = model.weights().layers[i];
    if (ple_step_reads(shape_of(layer.inp_gate), shape_of(layer.proj))) continue;
    return fmt::format("blk.{}.inp_gate and blk.{}.proj are floats, or differ in format", i, i);
  }
  return "";
}

}  // namespace carat::cuda
