#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "model/model.h"

namespace carat::cuda {

// The matrices of a layer in groups: those of one group are multiplied with the same activations, so they are packed,
// placed and copied together and their products are made in one way. Whoever needs to know which matrices a layer has
// asks for_each_group().
enum class GroupKind : uint8_t {
  kQkv,  // queries and, where the layer has them, keys and values
  kAttentionOutput,
  kGateUp,
  kDown,
  kPleGate,  // per-layer embeddings
  kPleProject,
  kRouter,
  kExpertGateUp,  // one matrix with the gate rows of each expert before its up rows, or two matrices
  kExpertDown,
};
inline constexpr uint32_t kGroupKinds = 9;

constexpr bool is_dense(GroupKind kind) { return kind <= GroupKind::kDown; }  // read by every row of a pass
constexpr bool is_expert(GroupKind kind) { return kind >= GroupKind::kExpertGateUp; }

// The matrices of one group, in the order their results are wanted.
class LayerGroup {
 public:
  // Matrices the layer does not have are left out.
  LayerGroup(GroupKind kind, std::initializer_list<const model::Matrix*> matrices) : kind_(kind) {
    for (const model::Matrix* matrix : matrices) {
      if (!matrix->empty()) matrices_[size_++] = matrix;
    }
  }
  GroupKind kind() const { return kind_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const model::Matrix& operator[](uint32_t i) const { return *matrices_[i]; }
  const model::Matrix* const* begin() const { return matrices_.data(); }
  const model::Matrix* const* end() const { return matrices_.data() + size_; }
  // Matrices [first, last), or as many of them as there are.
  LayerGroup part(uint32_t first, uint32_t last) const {
    LayerGroup some(kind_, {});
    for (uint32_t i = first; i < std::min(last, size_); ++i) some.matrices_[some.size_++] = matrices_[i];
    return some;
  }
  uint64_t elements() const {
    uint64_t sum = 0;
    for (const model::Matrix* matrix : *this) sum += matrix->rows * matrix->cols * matrix->slices;
    return sum;
  }

 private:
  GroupKind kind_;
  uint32_t size_ = 0;
  std::array<const model::Matrix*, 3> matrices_{};
};

inline LayerGroup group_of(const model::LayerWeights& layer, GroupKind kind) {
  switch (kind) {
    case GroupKind::kQkv:
      return {kind, {&layer.attn_q, &layer.attn_k, &layer.attn_v}};
    case GroupKind::kAttentionOutput:
      return {kind, {&layer.attn_output}};
    case GroupKind::kGateUp:
      return {kind, {&layer.ffn_gate, &layer.ffn_up}};
    case GroupKind::kDown:
      return {kind, {&layer.ffn_down}};
    case GroupKind::kPleGate:
      return {kind, {&layer.inp_gate}};
    case GroupKind::kPleProject:
      return {kind, {&layer.proj}};
    case GroupKind::kRouter:
      return {kind, {&layer.ffn_gate_inp}};
    case GroupKind::kExpertGateUp:
      return {kind, {&layer.ffn_gate_up_exps, &layer.ffn_gate_exps, &layer.ffn_up_exps}};
    case GroupKind::kExpertDown:
      return {kind, {&layer.ffn_down_exps}};
  }
  return {kind, {}};
}

// fn(const LayerGroup&) of each group the layer has, in the order of their kinds.
template <typename Fn>
void for_each_group(const model::Model& model, uint32_t layer, const Fn& fn) {
  for (uint32_t kind = 0; kind < kGroupKinds; ++kind) {
    const LayerGroup group = group_of(model.weights().layers[layer], static_cast<GroupKind>(kind));
    if (!group.empty()) fn(group);
  }
}

}  // namespace carat::cuda
