#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "exec/cuda/weights/matrix_groups.h"

namespace carat::cuda {

// What the matrix products of prompts (and of decode steps by matrix products) read the weights of a group as, and so
// which kernels make them. The plan decides it once for each group. Decode steps by kernels read every group as it is
// packed.
enum class ProductPath : uint8_t {
  kBf16,    // a bf16 copy made at load; the library
  kUnpack,  // bf16 that is unpacked into scratch memory before each product; the library
  kFp8,     // an e4m3 copy with a scale for each row; the library, over activations in e4m3
  kWgmma,   // as packed: they become bf16 on their way into the registers of warpgroup products
  kMmq,     // as packed: integer products over rounded activations
  kGemv,    // as packed: matrix-vector kernels over a few rows at a time
  kFp32,    // fp32; the library
};

// Of every group of a model.
class ProductPaths {
 public:
  ProductPaths() = default;
  explicit ProductPaths(uint32_t layers) : layers_(layers) {}

  ProductPath of(uint32_t layer, GroupKind kind) const { return layers_.at(layer).at(static_cast<size_t>(kind)); }
  void set(uint32_t layer, GroupKind kind, ProductPath path) { layers_.at(layer).at(static_cast<size_t>(kind)) = path; }

  ProductPath head = ProductPath::kGemv;         // the LM head
  ProductPath ple_input = ProductPath::kUnpack;  // the projection of the embeddings to those of all layers

 private:
  std::vector<std::array<ProductPath, kGroupKinds>> layers_;
};

// Which groups a kind of products can read.
bool fp8_reads(const LayerGroup& group);    // after a copy in e4m3 was made
bool mmq_reads(const LayerGroup& group);    // as they are packed
bool wgmma_reads(const LayerGroup& group);  // as they are packed

}  // namespace carat::cuda
