#pragma once

#include <cuda_bf16.h>

#include <array>
#include <cstdint>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/kernels/moe/moe.h"
#include "exec/cuda/weights/packed.h"
#include "exec/cuda/weights/placement.h"
#include "exec/cuda/weights/product_path.h"
#include "exec/cuda/weights/upload.h"
#include "model/model.h"

namespace carat::cuda {

// A group of matrices in device memory, in the order their results are wanted; without parts where the layer does not
// have it. Beside the packed parts there may be a copy of all of them stacked, [rows, cols]: the one `path` reads.
struct MatrixGroup {
  ProductPath path = ProductPath::kUnpack;
  std::vector<PackedView> parts;
  const __nv_bfloat16* bf16 = nullptr;  // kBf16. Of experts [experts, rows of one, cols], gate rows before up rows
  Fp8Matrix fp8;                        // kFp8
  uint32_t rows() const { return rows_before(parts.size()); }
  uint32_t rows_before(size_t part) const;  // of the parts before it
  uint32_t cols() const { return parts.empty() ? 0 : parts.front().cols; }
};

struct DeviceLayer {
  // fp32 vectors in device memory; null where the layer has none.
  const float* attn_norm = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* post_attention_norm = nullptr;
  const float* ffn_norm = nullptr;
  const float* post_ffw_norm = nullptr;
  const float* post_norm = nullptr;
  const float* router_scale = nullptr;  // ffn_gate_inp.scale * d^-1/2
  const float* pre_ffw_norm_2 = nullptr;
  const float* post_ffw_norm_1 = nullptr;
  const float* post_ffw_norm_2 = nullptr;
  const float* expert_scale = nullptr;
  const float* router = nullptr;  // [experts, d] fp32
  float output_scale = 1.0f;

  std::array<MatrixGroup, kGroupKinds> groups;
  MatrixGroup& operator[](GroupKind kind) { return groups[static_cast<size_t>(kind)]; }
  const MatrixGroup& operator[](GroupKind kind) const { return groups[static_cast<size_t>(kind)]; }
  ExpertRows expert_gate{}, expert_up{};  // where these rows lie in the parts of kExpertGateUp
};

// Uploads and repacks a model.
class DeviceWeights {
 public:
  DeviceWeights(const model::Model& model, const WeightPlacement& placement, const ProductPaths& paths,
                const UploadProgress& progress);

  PackedView token_embd;
  MatrixGroup head;
  PackedView ple_table;
  MatrixGroup ple_projection;
  const float* output_norm = nullptr;
  const float* ple_norm = nullptr;
  std::vector<DeviceLayer> layers;  // [L]; those before first_layer are empty
  const UploadResult& uploaded() const { return uploaded_; }
  double copies_seconds() const { return copies_seconds_; }  // taken by copies for products; 0: there are none

 private:
  // Hands out memory front to back; without a base it only adds up how much is needed.
  struct Cursor {
    char* base = nullptr;
    uint64_t used = 0;
    void* take(uint64_t bytes);
  };
  // Placement runs twice: first to add up bytes, then over real memory.
  PackedView reserve(const model::Matrix& matrix, Cursor& cursor);
  PackedView reserve(const model::Matrix& matrix) { return reserve(matrix, device_); }
  const float* vector(const model::Vector& values, float scale = 1.0f);
  void place(const model::Model& model, const WeightPlacement& placement, const ProductPaths& paths);
  void place_layer(const model::Model& model, uint32_t index, const ProductPaths& paths);
  void place_router(const model::Model& model, uint32_t index);
  void make_copies(const model::Model& model, const WeightPlacement& placement);
  void make_copy(MatrixGroup& group, const std::vector<PackedView>& parts);
  const __nv_bfloat16* stack_bf16(const std::vector<PackedView>& parts);
  Fp8Matrix stack_fp8(const std::vector<PackedView>& parts);

  DeviceMemory packed_;
  DeviceMemory copies_memory_;
  DeviceMemory vectors_;
  PinnedMemory host_table_;
  std::vector<Upload> uploads_;
  std::vector<float> host_vectors_;
  Cursor device_, host_, copies_;
  UploadResult uploaded_;
  double copies_seconds_ = 0.0;
};

}  // namespace carat::cuda
