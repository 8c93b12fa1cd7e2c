#pragma once

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/gemv/gemv_rows.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint32_t kGemvParts = 3;
// Where the activations of a product come from.
enum class GemvInput : uint32_t {
  kQuantised,  // already quantised rows
  kFloats,     // fp32 rows [rows, cols], quantised by each block
};

// What happens to the results.
enum class GemvOutput : uint32_t {
  kStore,      // out[row * leading + o]
  kGeglu,      // parts are gate and up: gelu(gate) * up, quantised for the next product
  kGeluTimes,  // gelu(result) * factors[row * factors_leading + o], stored
  kSoftcap,    // cap * tanh(result / cap), stored; a non-finite result of row r sets non_finite[r]
};

struct GemvPart {
  PackedView weights;
  float* out = nullptr;  // [rows, leading]
  uint32_t leading = 0;
};

// out = W x for up to three matrices over the same rows of activations (all matrices have the same number of columns).
struct GemvJob {
  uint32_t rows = 1;  // 1..8 activation rows
  uint32_t parts = 1;
  GemvPart part[kGemvParts];
  GemvInput input = GemvInput::kQuantised;
  QuantisedRows quantised{};      // kQuantised
  const float* floats = nullptr;  // kFloats, [rows, cols]
  GemvOutput output = GemvOutput::kStore;
  QuantisedRows geglu{};  // kGeglu: rows of part[0].weights.rows columns; values may be null
  uint32_t geglu_steps = 0;
  const float* factors = nullptr;  // kGeluTimes
  uint32_t factors_leading = 0;
  float cap = 0.0f;                // kSoftcap; 0: none
  uint32_t* non_finite = nullptr;  // kSoftcap: [rows]
};

// Bound by the weight bytes: each is read once per launch, 16 bytes a lane, several loads in flight before the first
// use, and the first ones before the predecessor kernel has finished.
void gemv(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch);

// The most rows (1, 2, 4 or 8) one launch can take for this width within the shared memory of a block.
uint32_t gemv_max_rows(uint32_t cols, bool float_weights, uint32_t shared_memory);

// Quantises rows on their own, for callers with more rows than is worth repeating in every block.
void quantise_residual_norm(const ResidualNorm& residual, uint32_t rows, const QuantisedRows& out,
                            const LaunchConfig& launch);
void quantise_floats(const float* values, uint32_t rows, uint32_t cols, uint32_t leading, const QuantisedRows& out,
                     const LaunchConfig& launch);
// gelu(gate) * up of [rows, 2 F] (gate first), for files whose gate and up matrices differ in format.
void quantise_geglu(const float* gate_up, uint32_t rows, uint32_t F, const QuantisedRows& out,
                    const LaunchConfig& launch);

}  // namespace carat::cuda
