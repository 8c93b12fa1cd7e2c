#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/device/element.h"
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/megakernel/megakernel_shape.h"
#include "exec/cuda/kernels/select/log_sum_exp.h"
#include "exec/cuda/kernels/select/select.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"
#include "model/config.h"

namespace carat::cuda {

// Hands out 256-byte aligned pieces of one allocation. Without a base it only adds up, so that the plan and the
// executor share one description of the scratch memory.
class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* take(uint64_t count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * kElementBytes<T> + 255) / 256 * 256;
    return at;
  }
  uint64_t used() const { return used_; }

 private:
  char* base_;
  uint64_t used_ = 0;
};

// Widths that decide the size of everything.
struct Widths {
  explicit Widths(const model::Config& config);
  uint32_t d, L, P, V;
  uint32_t qkv = 0;  // widest q + k + v
  uint32_t q = 0;    // widest H * hd
  uint32_t F = 0;
  uint32_t pairs_sliding = 0, pairs_global = 0;
  uint32_t experts = 0, used = 0, F_expert = 0;
};

// What describes the rows of a pass, in device memory.
struct RowArrays {
  const int32_t* tokens;
  const uint32_t* positions;
  const uint32_t* sequences;
  float2* rope_sliding;  // [rows, pairs]
  float2* rope_global;
  // Takes the memory of the rotations. The rest lies in a control block, which one copy brings to the device.
  void carve(Carver& carver, const Widths& w, uint32_t rows);
  template <typename Control>
  void point_into(const Control* control) {  // null: memory is only added up
    tokens = control == nullptr ? nullptr : control->tokens;
    positions = control == nullptr ? nullptr : control->positions;
    sequences = control == nullptr ? nullptr : control->sequences;
  }
};

// A row of the per-layer-embedding table on its way from host memory to a place in the device's cache of such rows.
struct PleFetch {
  int32_t token;  // negative: nothing to fetch
  uint32_t place;
};

// What the host says about the rows of a wide pass. The parts lie behind one another, each as long as the pass needs
// it, so that one copy brings them all to the device; host and device share this description of them.
struct PromptControl {
  struct Extent {
    uint32_t rows = 0;
    uint32_t tiles_sliding = 0, tiles_global = 0;
    uint32_t outputs = 0;
    bool cached_ple = false;
  };
  int32_t* tokens;
  uint32_t* positions;
  uint32_t* sequences;
  Segment* tiles_sliding;
  Segment* tiles_global;
  uint32_t* outputs;                                 // row index of each output
  int32_t* ple_places;                               // [rows] where the cache of per-layer embeddings has each row's
  PleFetch* ple_fetches;                             // [rows]
  uint64_t carve(void* base, const Extent& extent);  // returns the bytes from `base` on; null: they are only added up
};

// Bytes of the largest control block of a pass of up to `rows` rows: no pass has more tiles than rows.
uint64_t prompt_control_bytes(uint32_t rows, uint32_t outputs);

// The rows of a decode step as the host writes them: one copy brings them to the device.
struct DecodeControl {
  static constexpr uint32_t kRows = 8;
  int32_t tokens[kRows];
  uint32_t positions[kRows];
  uint32_t sequences[kRows];
  uint32_t k;  // candidates wanted
};

// What comes back from a pass; lies in page-locked memory that kernels write directly.
struct HostResults {
  uint32_t* non_finite;  // [outputs] not 0: a logit of the output is NaN or infinite
  int32_t* tokens;       // [outputs, kSelectMax]
  float* values;         // [outputs, kSelectMax]
  uint32_t* counts;      // [outputs]
  int32_t* wanted;       // [kSelectMax] tokens whose logits are asked for
  float* wanted_values;
  LogSumPart* log_sums;  // [outputs, kLogSumParts]
  void carve(Carver& carver, uint32_t outputs);
};

// Prompt chunks: everything between two matrix products of up to `rows` rows.
struct PromptBuffers {
  RowArrays rows;                 // what a pass's control block holds is added by the pass
  void* control;                  // the largest PromptControl
  float* x;                       // [rows, d] residual stream
  __nv_bfloat16* normed;          // [rows, d]
  __nv_bfloat16* qkv;             // [rows, qkv]
  __half* q;                      // [rows, q]
  __nv_bfloat16* attention;       // [rows, q]
  __nv_bfloat16* delta;           // [rows, d]
  __nv_bfloat16* gate_up;         // [rows, 2 F]
  __nv_bfloat16* act;             // [rows, F]
  __nv_bfloat16* ple_projection;  // [rows, slices * P]
  float* ple;                     // [rows, slices * P]
  __nv_bfloat16* ple_gate;        // [rows, P]
  __nv_bfloat16* ple_act;         // [rows, P]
  // Mixture of experts
  float* router_in;      // [rows, d]
  float* router_logits;  // [rows, experts]
  uint32_t *expert_ids, *expert_offsets, *expert_source, *expert_place;
  float* expert_weights;
  __nv_bfloat16* expert_in;       // [rows, d]
  __nv_bfloat16* expert_gate_up;  // [rows * used, 2 F_expert]
  __nv_bfloat16* expert_act;      // [rows * used, F_expert]
  __nv_bfloat16* expert_out;      // [rows * used, d]
  __nv_bfloat16* experts;         // [rows, d]
  void carve(Carver& carver, const Widths& w, uint32_t rows, uint32_t outputs);
};

// Decode: up to kGemvRows rows.
struct GemvBuffers {
  DecodeControl* control;
  RowArrays rows;    // tokens, positions and sequences point into control
  float* x[2];       // [8, d] the residual stream, alternating
  float* embedding;  // [8, d]
  float* qkv;        // [8, qkv]
  __half* q;
  float* attention;       // [8, q]
  float* delta;           // [8, d]
  float* gate_up;         // [8, 2 F], only for layers whose gate and up differ in format
  float* experts;         // [8, d]
  float* ple_projection;  // [8, L * P]
  float* ple;
  float* ple_gate;    // [8, P]
  QuantisedRows in;   // [8, widest input]
  QuantisedRows act;  // [8, F]
  QuantisedRows expert_in;
  QuantisedRows expert_act;  // [8 * used, F_expert]
  float* router_logits;
  uint32_t* expert_ids;
  float* expert_weights;
  void carve(Carver& carver, const Widths& w);
};

// What the blocks of the token kernel exchange, and its stages. Tags start at zero, which no stage has.
struct MegakernelBuffers {
  void* stages;  // [stage_capacity] MegakernelStage
  uint32_t stage_capacity;
  uint32_t* serial;  // of the next token
  TaggedWord* qkv;
  TaggedQuad* partial;    // [H][hd / 4][splits] of the largest layer
  Tagged* stats;          // [H, splits, 2]
  TaggedWord* attention;  // [q]
  // [d] each. Apart, because a block may still read one when others, which did not wait for it, write the next.
  TaggedWord *attention_delta, *ffn_delta, *ple_delta;
  TaggedWord* hidden;          // [F]
  TaggedEight* hidden_eights;  // [F / 8]
  TaggedWord* ple_projection;
  TaggedWord* ple;  // [L * P]
  TaggedWord* ple_gate;
  Tagged* router;
  TaggedEight* expert_hidden;  // [used * F_expert / 8]
  TaggedWord* experts;         // [d]
  void carve(Carver& carver, const Widths& w, const model::Config& config, uint32_t sm_count);
};

// The rows of a batched decode step as the host writes them.
struct SkinnyControl {
  int32_t tokens[kSkinnyRows];
  uint32_t positions[kSkinnyRows];
  uint32_t sequences[kSkinnyRows];
  uint32_t k;  // candidates wanted
};

// Batched decode: up to `rows` rows (a bucket), fp32 between products.
struct SkinnyBuffers {
  static constexpr uint64_t kPartialFloats = uint64_t{4} << 20;  // sums of products whose columns are split over SMs
  static constexpr uint32_t kPartialCounters = 1u << 15;
  SkinnyControl* control;
  RowArrays rows;  // tokens, positions and sequences point into control
  float* x[2];     // [rows, d] the residual stream, alternating
  float* qkv;      // [rows, qkv]
  __half* q;
  float* attention;       // [rows, q]
  float* delta;           // [rows, d]
  float* gate_up;         // [rows, 2 F], only for layers whose gate and up differ in format
  float* act;             // [rows, F]
  float* ple_projection;  // [rows, L * P]
  float* ple;
  float* ple_gate;        // [rows, P]
  SkinnyRows in;          // [rows, d]
  uint32_t* act_largest;  // [rows] bits of the largest |act|
  uint32_t* ple_largest;
  float* partial;
  uint32_t* counters;
  void carve(Carver& carver, const Widths& w, uint32_t rows);
};

// Results and what selection needs.
struct OutputBuffers {
  float* hidden;          // [outputs, d]
  __nv_bfloat16* normed;  // [outputs, d]
  float* logits;          // [outputs, V]
  SelectScratch select;
  float* attention_partial;
  uint32_t* attention_counters;
  void carve(Carver& carver, const Widths& w, uint32_t outputs, uint64_t attention_partial_elements, uint32_t counters);
};

}  // namespace carat::cuda
