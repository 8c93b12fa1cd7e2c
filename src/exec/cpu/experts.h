#pragma once

#include <cstdint>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/layer_kernels.h"
#include "exec/cpu/matmul/activations.h"
#include "exec/cpu/threads/workers.h"
#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec::cpu {

// The expert branch of a mixture-of-experts layer (docs/gemma4.md 3.6): rows are grouped by expert, so each expert's
// weights are read once per pass. A row adds its experts from the most to the least probable, whatever the other rows
// chose.
class Experts {
 public:
  Experts(const model::Config& config, const ExecutorOptions& options, const Workers& workers, bool int16);

  // h: [rows, d] after the first residual. out: [rows, d], the weighted sum of the experts before post_ffw_norm_2.
  // normed: [rows, d] to work in; inputs: room for the router's input.
  void run(const model::LayerWeights& weights, const LayerKernels& kernels, const float* h, uint32_t rows,
           float* normed, ActivationBuffer& inputs, float* out);

 private:
  void route(const model::LayerWeights& weights, uint32_t rows);
  void choose(uint32_t row, const model::LayerWeights& weights);
  void group_rows(uint32_t rows);
  void multiply_gate_and_up(const LayerKernels& kernels);
  void multiply_down(const LayerKernels& kernels);
  void quantise_groups(bool needed);

  // The rows of one expert: entries [first, first + count) of the sorted lists.
  struct Group {
    uint32_t expert;
    uint32_t first;
    uint32_t count;
  };

  const model::Config* config_;
  Workers workers_;
  bool int16_;
  AlignedBuffer<float> probabilities_;  // [rows, experts]
  AlignedBuffer<uint32_t> chosen_;      // [rows, used], most probable first
  AlignedBuffer<float> weights_;        // [rows, used]: share of the expert times its output scale
  AlignedBuffer<uint32_t> entry_;       // [rows, used]: where the row is in the lists sorted by expert
  AlignedBuffer<uint32_t> source_row_;  // [rows * used], sorted by expert
  std::vector<uint32_t> next_entry_;    // [experts], while sorting
  std::vector<Group> groups_;
  std::vector<RowTiles::Tile> tiles_;  // of all groups
  std::vector<Activations> slices_;    // [groups]
  std::vector<Product> products_;
  ActivationBuffer inputs_;         // [rows * used, max(d, F_expert)]
  AlignedBuffer<float> gate_, up_;  // [rows * used, F_expert]
  AlignedBuffer<float> down_;       // [rows * used, d]
};

}  // namespace carat::exec::cpu
