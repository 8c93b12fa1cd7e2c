#include "exec/cuda/plan/gemm_choice.h"

#include "base/error.h"
#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/weights/product_path.h"

namespace carat::cuda {

namespace {

// Cards whose tensor cores multiply 8-bit integers four times as fast as bf16 with fp32 sums. 15-bit activations take
// two such products and are still twice as fast.
bool integers_win(uint32_t capability) { return capability == 86 || capability == 89 || capability >= 120; }

// Cards on which they are twice as fast: no gain, unless the library had to unpack its weights for every product.
bool integers_win_over_unpacking(uint32_t capability) { return capability == 80; }

// Whether products of this kind can read a dense group of the layers from `first_layer` on.
bool any_dense_group(const model::Model& model, uint32_t first_layer, bool (*reads)(const LayerGroup&)) {
  bool any = false;
  for (uint32_t i = first_layer; i < model.config().L; ++i) {
    for_each_group(model, i, [&](const LayerGroup& group) { any = any || (is_dense(group.kind()) && reads(group)); });
  }
  return any;
}

void check_fp8(const model::Model& model, const GpuFacts& gpu, const exec::KernelChoices& wishes,
               uint32_t first_layer) {
  if (wishes.find("gemm") != "fp8") return;
  if (!gpu.row_scaled_fp8) {
    fail(ErrorCode::kBadArgument,
         "--kernels gemm=fp8 is not possible: it needs compute capability 9.0 and cuBLAS 12.9 or newer; {} has {}.{}; "
         "leave it out",
         gpu.name, gpu.capability / 10, gpu.capability % 10);
  }
  if (!any_dense_group(model, first_layer, fp8_reads)) {
    fail(ErrorCode::kBadArgument,
         "--kernels gemm=fp8 is not possible: it needs widths in multiples of {}, and no product of the model's layers "
         "has them",
         kFp8Unit);
  }
  for (const char* slot : {"gemm.weights", "activations"}) {
    if (const auto other = wishes.find(slot)) {
      fail(ErrorCode::kBadArgument,
           "--kernels gemm=fp8,{}={} contradict each other: fp8 has weights and activations of its own form; leave one "
           "out",
           slot, *other);
    }
  }
}

void check_wishes(const exec::KernelChoices& wishes, bool has_work) {
  const bool mmq = wishes.find("gemm") == "mmq";
  if (mmq && !has_work) {
    fail(ErrorCode::kBadArgument, "--kernels gemm=mmq is not possible: the model's layers have no quantised weights");
  }
  if (mmq && wishes.find("gemm.weights") == "resident") {
    fail(ErrorCode::kBadArgument,
         "--kernels gemm=mmq,gemm.weights=resident contradict each other: mmq reads the quantised weights and keeps no "
         "bf16 copies; leave one out");
  }
  if (wishes.find("activations") && wishes.find("gemm") == "cublas") {
    fail(ErrorCode::kBadArgument,
         "--kernels activations={} is a choice of gemm=mmq, and gemm=cublas rounds activations to bf16; leave one out",
         *wishes.find("activations"));
  }
}

}  // namespace

GemmChoice choose_gemm(const model::Model& model, const GpuFacts& gpu, const exec::KernelChoices& wishes,
                       uint32_t first_layer, bool bf16_copies) {
  const bool has_work = any_dense_group(model, first_layer, mmq_reads);
  check_wishes(wishes, has_work);
  check_fp8(model, gpu, wishes, first_layer);
  GemmChoice choice;
  if (wishes.find("activations") == "int8") choice.activations = MmqActivations::kInt8;
  const auto choose = [&](GemmKind kind, std::string reason) {
    choice.kind = kind;
    choice.reason = std::move(reason);
    return choice;
  };
  if (const auto wish = wishes.find("gemm")) {
    return choose(*wish == "mmq"   ? GemmKind::kMmq
                  : *wish == "fp8" ? GemmKind::kFp8
                                   : GemmKind::kLibrary,
                  "asked for (--kernels)");
  }
  if (!has_work) return choose(GemmKind::kLibrary, "the layers have no quantised weights");
  if (wishes.find("gemm.weights")) return choose(GemmKind::kLibrary, "bf16 weights were asked for");
  if (wishes.find("activations")) return choose(GemmKind::kMmq, "quantised activations were asked for");
  if (integers_win(gpu.capability)) {
    return choose(GemmKind::kMmq, "this card multiplies integers four times as fast as bf16");
  }
  if (integers_win_over_unpacking(gpu.capability) && !bf16_copies) {
    return choose(GemmKind::kMmq, "no room for a bf16 copy of the weights, and unpacking them costs more");
  }
  return choose(GemmKind::kLibrary, "bf16 products are the fastest on this card");
}

}  // namespace carat::cuda
