#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/fp8.h"
#include "exec/cuda/kernels/moe.h"
#include "exec/cuda/weights/packed.h"
#include "exec/cuda/weights/placement.h"
#include "exec/cuda/weights/upload.h"
#include "model/model.h"

namespace carat::cuda {

// The matrices of one layer that are multiplied with the same activations, in the order their results are wanted.
// `bf16` is a resident copy of all of them stacked, [rows, cols]; null when the plan has no room for it. `fp8` is one
// in e4m3 instead, where the plan wants that.
struct MatrixGroup {
  std::vector<PackedView> parts;
  const __nv_bfloat16* bf16 = nullptr;
  Fp8Matrix fp8;
  bool has_fp8() const { return fp8.values != nullptr; }
  uint32_t rows() const;
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

  MatrixGroup qkv, output, gate_up, down, inp_gate, proj;
  PackedView router_packed;
  ExpertRows expert_gate{}, expert_up{};
  PackedView expert_down;
  const __nv_bfloat16* experts_gate_up_bf16 = nullptr;  // [experts, 2 F, d], gate rows first
  const __nv_bfloat16* experts_down_bf16 = nullptr;     // [experts, d, F]
};

// Uploads and repacks a model.
class DeviceWeights {
 public:
  DeviceWeights(const model::Model& model, const WeightPlacement& placement, const UploadProgress& progress);

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
  void place(const model::Model& model, const WeightPlacement& placement);
  void place_layer(const model::Model& model, uint32_t index);
  void make_copies(const model::Model& model, const WeightPlacement& placement);
  void copy_layer(const model::Model& model, uint32_t index, const WeightPlacement& placement);
  void copy_experts(const model::Model& model, uint32_t index, const WeightPlacement& placement);
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
