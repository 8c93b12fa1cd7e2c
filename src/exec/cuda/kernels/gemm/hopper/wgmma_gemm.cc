#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/device/tensor_map.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_job.h"

namespace carat::cuda {

namespace {

WgmmaJobPart describe(const WgmmaPart& part) {
  const PackedView& weights = part.weights;
  WgmmaJobPart to{};
  to.rows = part.rows;
  to.stride = part.stride;
  to.offset = part.offset;
  if (weights.packing == Packing::kBF16) {
    const uint64_t pitch = part.pitch != 0 ? part.pitch : uint64_t{weights.steps} * kStep;
    to.quants = make_tensor_map(weights.quants, {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, weights.cols, weights.rows,
                                                 pitch * 2, 64, kWgmmaTileRows / 2, true});
    return to;
  }
  const PackedBytes bytes = packed_bytes(weights.packing);
  const auto plane = [&](const void* base, uint64_t step_bytes, uint32_t box_bytes, bool swizzled) {
    const uint64_t row = step_bytes * weights.steps;
    return make_tensor_map(
        base, {CU_TENSOR_MAP_DATA_TYPE_UINT8, row, weights.rows, row, box_bytes, kWgmmaTileRows / 2, swizzled});
  };
  to.quants = plane(weights.quants, bytes.quants, 128, true);
  to.scales = plane(weights.scales, bytes.scales, 16, false);
  return to;
}

WgmmaJob describe(const WgmmaGemm& product) {
  WgmmaJob job{};
  job.parts = static_cast<uint32_t>(product.parts.size());
  job.geglu = product.geglu;
  job.k = product.parts.front().weights.cols;
  job.blocks = wgmma_ceil(job.k, 64);
  job.box_columns = product.parts.front().weights.packing == Packing::kBF16 ? 64 : 128;
  for (uint32_t p = 0; p < job.parts; ++p) {
    job.part[p] = describe(product.parts[p]);
    if (product.geglu) continue;  // the two parts share their tiles and columns
    job.part[p].first_tile = job.row_tiles;
    job.part[p].column = job.out_columns;
    job.row_tiles += wgmma_ceil(product.parts[p].rows, kWgmmaTileRows);
    job.out_columns += product.parts[p].rows;
  }
  if (product.geglu) {
    job.row_tiles = wgmma_ceil(product.parts.front().rows, kWgmmaTileRows / 2);
    job.out_columns = product.parts.front().rows;
    job.parts = 1;
  }
  if (product.leading != 0) job.out_columns = product.leading;
  job.a = product.a;
  job.source = product.source;
  job.offsets = product.offsets;
  job.groups = product.groups;
  job.total = product.total;
  job.out = product.out;
  if (product.source == nullptr) {
    job.activations = make_tensor_map(product.a, {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, job.k, product.total,
                                                  uint64_t{job.k} * 2, 64, kWgmmaWidthUnit, true});
  }
  return job;
}

}  // namespace

bool wgmma_can(const WgmmaGemm& product) {
  const std::vector<WgmmaPart>& parts = product.parts;
  if (parts.empty() || parts.size() > kWgmmaMaxParts || product.groups == 0 || product.groups > kWgmmaMaxGroups ||
      product.leading % 8 != 0) {
    return false;
  }
  if (product.geglu && (parts.size() != 2 || parts[0].rows != parts[1].rows)) return false;
  const PackedView& first = parts.front().weights;
  return std::all_of(parts.begin(), parts.end(), [&](const WgmmaPart& part) {
    return wgmma_reads(part.weights.packing, part.rows, part.weights.cols) && part.weights.packing == first.packing &&
           part.weights.cols == first.cols && part.pitch % 8 == 0;
  });
}

bool wgmma_available() {
  int major = 0, minor = 0, device = 0;
  check(cudaGetDevice(&device), "choosing a GPU");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "reading the GPU's properties");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "reading the GPU's properties");
  return major == 9 && minor == 0 && wgmma_kernels_compiled();
}

void wgmma_gemm(const WgmmaGemm& product, uint32_t sm_count, const LaunchConfig& launch, uint32_t width) {
  CARAT_CHECK(wgmma_can(product));
  CARAT_CHECK(product.offsets != nullptr || product.groups == 1);
  if (product.total == 0) return;
  const WgmmaJob job = describe(product);
  const Packing packing = product.parts.front().weights.packing;
  if (width == 0) {
    width = product.offsets == nullptr
                ? wgmma_dense_width(product.total, job.row_tiles, sm_count, packing != Packing::kBF16)
                : wgmma_grouped_width(product.total, product.groups);
  }
  const uint64_t tiles = wgmma_most_tiles(product.total, product.groups, job.row_tiles, width);
  const auto blocks = static_cast<uint32_t>(std::min<uint64_t>(tiles, sm_count));
  switch (packing) {
    case Packing::kQ8:
      return launch_wgmma_gemm<Packing::kQ8>(job, width, blocks, launch);
    case Packing::kQ4:
      return launch_wgmma_gemm<Packing::kQ4>(job, width, blocks, launch);
    case Packing::kQ4K:
      return launch_wgmma_gemm<Packing::kQ4K>(job, width, blocks, launch);
    default:
      return launch_wgmma_gemm<Packing::kBF16>(job, width, blocks, launch);
  }
}

WgmmaPart wgmma_bf16(const __nv_bfloat16* values, uint32_t groups, uint32_t rows, uint32_t cols) {
  WgmmaPart part;
  part.weights = {
      .packing = Packing::kBF16, .rows = groups * rows, .cols = cols, .steps = steps_of(cols), .quants = values};
  part.rows = rows;
  part.stride = rows;
  part.pitch = cols;
  return part;
}

}  // namespace carat::cuda
