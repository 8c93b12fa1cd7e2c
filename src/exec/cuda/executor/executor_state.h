#pragma once

// The CUDA executor's inside; included by its own source files only.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu_layers.h"
#include "exec/cuda/device/facts.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/executor/pass_kind.h"
#include "exec/cuda/kernels/elementwise/rope.h"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/kernels/gemv/gemv.h"
#include "exec/cuda/kernels/megakernel/megakernel.h"
#include "exec/cuda/kernels/mmq/mmq.h"
#include "exec/cuda/kernels/skinny/skinny_gemm.h"
#include "exec/cuda/passes/ple_cache.h"
#include "exec/cuda/plan/buffers.h"
#include "exec/cuda/plan/fp8_buffers.h"
#include "exec/cuda/plan/mmq_buffers.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/profile/profiler.h"
#include "exec/cuda/weights/device_weights.h"
#include "exec/executor.h"
#include "exec/sequence_table.h"

namespace carat::cuda {

// Of an SM's L1, for the shared memory of kernels of a batched step: a block of each but products of more than 16 rows.
// What is left holds the loads that are under way: with all of it shared, steps take a quarter longer.
inline constexpr uint32_t kStepSharedPercent = 44;

// Runs passes in three ways. Wide: many rows, activations in bf16, weights as bf16 operands of matrix products. Narrow:
// up to eight rows, fp32 activations quantised to int8 where they meet the quantised weights. Batched: decode steps of
// several rows, fp16 operands made of the quantised weights on the way to the tensor cores. All leave keys and values
// in the same caches. A prompt chunk runs wide up to the last layer that owns keys and values; its few rows that
// want logits go on narrow.
//
// Where the plan leaves the first layers to the CPU, they run there before anything of a pass is on the GPU, and what
// they hand over takes the place of the embeddings. There is one table of lengths, so both sides always agree.
class CudaExecutor final : public exec::Executor {
 public:
  CudaExecutor(std::shared_ptr<const model::Model> model, exec::ExecutorOptions options, const GpuFacts& gpu, Plan plan,
               const UploadProgress& progress);

  std::string_view name() const override { return layers_on_cpu() == 0 ? "cuda" : "cuda+cpu"; }
  const model::Model& model() const override { return *model_; }
  const exec::ExecutorOptions& options() const override { return options_; }
  ~CudaExecutor() override;
  void forward(std::span<const exec::Row> rows) override {
    start(rows);
    finish();
  }
  // Layers on the CPU run before start() returns.
  bool runs_in_background() const override { return cpu_layers_ == nullptr; }
  void start(std::span<const exec::Row> rows) override;
  void finish() override;
  uint32_t outputs() const override { return output_count_; }
  bool is_finite(uint32_t output) const override;
  std::span<const float> logits(uint32_t output) override;
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override;
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override;
  double log_sum_exp(uint32_t output) override;
  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }

  const DeviceWeights& weights() const { return weights_; }

  // What the search for algorithms at load did.
  struct SearchReport {
    uint32_t known = 0;      // products found in the cache
    uint32_t searched = 0;   // products timed
    uint32_t changed = 0;    // of these: with another algorithm than the ranking's first
    uint32_t postponed = 0;  // products left to the next load
    double seconds = 0.0;
  };
  const SearchReport& search_report() const { return search_report_; }

  // --- profile.cc
  const Plan& plan() const { return plan_; }
  const Stream& stream() const { return stream_; }
  // Steps of the passes that follow are marked there; null: of none.
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }
  // A decode step of one row as a graph of its own, with the profiler's marks in it where there is one. Replays repeat
  // the same position and leave the lengths of the sequences alone.
  Graph capture_step(const exec::Row& row, Profiler* profiler);
  // The stages of the token kernel; the seconds each took in a run of this row and, last, those of the selection that
  // follows. The lengths of the sequences stay.
  const std::vector<StepMark>& megakernel_marks() const { return megakernel_marks_; }
  std::vector<double> trace_megakernel(const exec::Row& row);

 private:
  using PromptResidual = ResidualNormOf<__nv_bfloat16>;

  // --- prompt_pass.cc
  // Neighbouring tiles of one sequence.
  struct TileRun {
    uint32_t first, count;
    uint32_t sequence;
    uint32_t end;  // one past the last position
  };
  struct PromptPass {
    uint32_t rows = 0;
    uint32_t asked = 0;       // rows somebody asked for; those after them pad the pass
    PromptControl control{};  // on the device
    uint64_t control_bytes = 0;
    RowArrays arrays{};                            // those of the control block, and the rotations
    uint32_t tiles_sliding = 0, tiles_global = 0;  // 0 and 0: every row is a segment of its own
    std::vector<TileRun> global_runs;              // the same tiles as tiles_global counts
    uint32_t outputs = 0;                          // rows that want logits
    uint32_t slices = 0;                           // layers whose per-layer embeddings are there
    PromptResidual pending{};                      // what the residual stream still has to absorb
    bool single_rows = false;                      // a decode step: every row is a sequence of its own
    bool normalised = false;                       // the input of the next layer is made already
  };
  void run_prompt(std::span<const exec::Row> rows, const PassClass& pass);
  uint32_t prompt_stop(std::span<const exec::Row> rows, const PassClass& pass) const;
  void enter_prompt_pass(PromptPass& pass);
  void prompt_ple_input(PromptPass& pass);
  void prompt_layers(PromptPass& pass, uint32_t stop);
  void prompt_layer(uint32_t index, PromptPass& pass, bool write_kv);
  void prompt_keys_values(uint32_t index, PromptPass& pass);
  void prompt_attention(uint32_t index, const PromptPass& pass);
  void gemm_step_attention(uint32_t index, const PromptPass& pass);
  void sparse_attention(const AttentionShape& shape, const KvView& kv, const PromptPass& pass);
  void prompt_feed_forward(uint32_t index, PromptPass& pass);
  void prompt_experts(uint32_t index, PromptPass& pass);
  void prompt_ple(uint32_t index, PromptPass& pass);
  void prompt_layer_end(uint32_t index, PromptPass& pass);
  template <typename Kernel>
  void absorb(PromptPass& pass, const float* next_norm, const Kernel& kernel);
  void normalise(PromptPass& pass, const float* next_norm, __nv_bfloat16* out);
  void normalise(PromptPass& pass, const float* next_norm, const MatrixGroup& readers);
  // Activations for the products of a group that wants them in a form of its own.
  void round_for(const MatrixGroup& readers, const __nv_bfloat16* values, uint32_t rows);
  MmqRows mmq_rows() const;
  void product(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows);
  void product(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a, __nv_bfloat16* out,
               uint32_t rows);
  const __nv_bfloat16* bf16_of(const MatrixGroup& group, size_t first, size_t last);
  const __nv_bfloat16* unpack(std::span<const PackedView> parts);
  void finish_prompt_pass(std::span<const exec::Row> wanting, PromptPass& pass, uint32_t stopped_at);
  bool continues_by_gemv(uint32_t outputs, uint32_t stopped_at) const;
  void upload_decode_control();
  void head_from_hidden();

  // --- prompt_rows.cc
  PromptPass stage_prompt_pass(std::span<const exec::Row> rows, uint32_t slices, uint32_t bucket = 0);
  void write_control(std::span<const exec::Row> rows, std::span<const Segment> sliding, std::span<const Segment> global,
                     PromptPass& pass);
  uint32_t tile_rows(bool sliding) const;
  void run_prompt_bucket(std::span<const exec::Row> rows, const PassClass& shape);
  void prompt_chunk(PromptPass pass, uint32_t stop);

  // --- decode_gemm.cc
  void run_decode_gemm(std::span<const exec::Row> rows, const PassClass& shape);
  void gemm_step(PromptPass pass);

  // --- prompt_products.cc
  void product_by_library(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                          __nv_bfloat16* out, uint32_t rows);
  void product_by_mmq(const MatrixGroup& group, size_t first, size_t last, __nv_bfloat16* out, uint32_t rows);
  void product_by_warpgroups(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                             __nv_bfloat16* out, uint32_t rows);
  void gate_up_by_warpgroups(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows);
  void experts_by_warpgroups(uint32_t index, const PromptPass& pass);
  void experts_by_mma(uint32_t index, const PromptPass& pass);
  const __nv_bfloat16* expert_gate_up_bf16(uint32_t index);

  // --- gemm_search.cc
  struct SearchedProduct {
    GemmProduct product;
    GemmTrial trial;  // with all weights of this shape
    double work() const { return 1.0 * product.n * product.k * static_cast<double>(trial.weights.size()); }
  };
  std::vector<SearchedProduct> products_of_chunk(uint32_t rows) const;
  std::vector<SearchedProduct> searched_products() const;
  void search_algorithms();
  void require_fp8();

  // --- decode_gemv.cc
  struct GemvPass {
    uint32_t rows = 0;
    uint32_t buffer = 0;  // which of the two x buffers holds the residual stream
    ResidualNorm pending{};
  };
  void run_decode_gemv(std::span<const exec::Row> rows, const PassClass& shape);
  void run_prompt_gemv(std::span<const exec::Row> rows, const PassClass& shape);
  void fill_control(std::span<const exec::Row> rows, uint32_t bucket);
  void gemv_step(uint32_t rows);
  GemvPass enter_gemv_pass(uint32_t rows);
  GemvPass begin_gemv_pass(uint32_t rows);
  void gemv_ple(uint32_t rows);
  void gemv_layer(uint32_t index, GemvPass& pass, bool write_kv);
  void gemv_experts(uint32_t index, GemvPass& pass);
  void gemv_head(GemvPass& pass);
  void apply(GemvPass& pass, const float* next_norm, GemvJob& job);
  void quantise_input(GemvJob& job, const float* floats, uint32_t cols);
  void multiply(const GemvJob& job);

  // --- every way to decode
  // A step as a replay of its graph, which the first one records; kernel by kernel where there are to be no graphs.
  template <typename Step>
  void run_step(Graph& graph, const Step& step) {
    if (!plan_.use_graphs || profiler_ != nullptr) return step();
    if (!graph.ready()) {
      step();  // outside the capture: sets kernel attributes and loads modules
      stream_.synchronise();
      graph = Graph::capture(stream_.get(), step);
    }
    graph.launch(stream_.get());
  }
  // The rows of a step, padded to its bucket by rows that write to the spare sequence.
  template <typename Control>
  void fill_rows(Control& control, std::span<const exec::Row> rows, uint32_t bucket) const {
    for (uint32_t r = 0; r < bucket; ++r) {
      const bool real = r < rows.size();
      control.tokens[r] = real ? rows[r].token : 0;
      control.positions[r] = real ? rows[r].position : 0;
      control.sequences[r] = real ? rows[r].sequence : plan_.sequences;
    }
    control.k = wanted_k_;
  }

  // --- decode_megakernel.cc
  void build_megakernel_program();
  void run_decode_megakernel(std::span<const exec::Row> rows);
  struct MegakernelTrace {
    uint64_t* clocks = nullptr;  // [stages + 1]
    Event started{true}, computed{true}, selected{true};
  };
  void megakernel_step(const MegakernelTrace* trace = nullptr);

  // --- decode_skinny.cc
  struct SkinnyPass {
    uint32_t rows = 0;
    uint32_t buffer = 0;  // which of the two x buffers holds the residual stream
    ResidualNorm pending{};
    bool single_rows = false;  // every row is a sequence of its own
    bool normalised = false;   // the input of the next layer is made already
  };
  void run_decode_skinny(std::span<const exec::Row> rows, const PassClass& shape);
  void skinny_step(uint32_t rows, bool single_rows);
  SkinnyPass begin_skinny(uint32_t rows);
  void skinny_layer(uint32_t index, SkinnyPass& pass);
  void skinny_attention(uint32_t index, SkinnyPass& pass);
  void skinny_heads(uint32_t index, const SkinnyPass& pass);
  void skinny_feed_forward(uint32_t index, SkinnyPass& pass);
  void skinny_ple(uint32_t index, SkinnyPass& pass);
  void skinny_layer_end(uint32_t index, SkinnyPass& pass);
  const float* norm_after(uint32_t index) const;
  std::vector<float> bounds_after_layers() const;
  SkinnyRows normalise(SkinnyPass& pass, const float* next_norm, uint32_t* clear);
  SkinnyJob to_stream(const MatrixGroup& weights, uint32_t rows, const float* activations, uint32_t leading,
                      uint32_t* largest) const;
  void multiply(const SkinnyJob& job);

  // --- profiling: says what was just launched; nothing but a comparison when nothing is profiled
  void mark(Step step, uint32_t layer, uint64_t extent, bool narrow) {
    if (profiler_ != nullptr) profiler_->mark({step, layer, extent, narrow}, stream_.get());
  }
  void mark(Step step, uint32_t layer, const PromptPass& pass) { mark(step, layer, pass.asked, false); }
  void mark(Step step, uint32_t layer, const GemvPass& pass) { mark(step, layer, pass.rows, true); }

  // Kernels that overlap cannot be timed one by one.
  LaunchConfig launch_config() const { return {stream_.get(), plan_.overlap && profiler_ == nullptr}; }
  // For kernels of a batched step.
  LaunchConfig decode_launch_config() const {
    LaunchConfig launch = this->launch_config();
    launch.shared_percent = kStepSharedPercent;
    return launch;
  }
  KvView kv_of(uint32_t layer) const { return caches_[model_->config().layers[layer].kv_source]; }
  AttentionShape shape_of(const model::Layer& layer) const;
  void check_cancelled() const;
  void allocate();
  uint32_t layers_on_cpu() const { return plan_.placement.first_layer; }
  void run_cpu_layers(std::span<const exec::Row> rows, uint32_t count);
  void make_rope_tables(const RowArrays& rows, uint32_t count);
  QkvPost qkv_post_job(uint32_t index, const RowArrays& rows, bool write_kv) const;
  void run_selection(uint32_t k);

  std::shared_ptr<const model::Model> model_;
  exec::ExecutorOptions options_;
  GpuFacts gpu_;
  Plan plan_;
  Widths widths_;
  exec::SequenceTable table_;
  Stream stream_;
  DeviceWeights weights_;
  Gemm gemm_;
  DeviceMemory scratch_;
  DeviceMemory cache_memory_;
  DeviceArray<double> frequencies_;  // sliding pairs, then global pairs
  uint32_t pairs_sliding_ = 0, pairs_global_ = 0;
  PinnedMemory staging_;  // the control block of a wide pass on its way to the device
  PinnedMemory results_memory_;
  HostResults results_host_{}, results_{};  // the same memory as the host and as the device sees it
  PinnedMemory control_, skinny_control_;
  std::unique_ptr<exec::CpuLayers> cpu_layers_;  // null when all layers are on the GPU
  PinnedMemory entering_;                        // [max(chunk, 64), d] fp32: what they hand over
  PromptBuffers prompt_buffers_{};
  PleCache ple_cache_;           // in use where the per-layer-embedding table is in host memory
  PackedView ple_cache_rows_{};  // its rows
  MmqBuffers mmq_{};
  Fp8Buffers fp8_{};
  SearchReport search_report_;
  GemvBuffers gemv_buffers_{};
  SparseBuffers sparse_{};  // in use where the plan has sparse attention
  SkinnyBuffers skinny_{};
  std::vector<float> norm_bounds_;  // [L]: bounds_after_layers()
  OutputBuffers out_{};
  MegakernelBuffers token_{};
  std::vector<StepMark> megakernel_marks_;  // what each stage of the token kernel counts as
  MegakernelJob megakernel_job_{};          // without the clock
  MegakernelBuild megakernel_needs_;
  __nv_bfloat16* unpacked_ = nullptr;  // weights of one product when there are no resident copies
  std::vector<KvView> caches_;         // [L]; layers without a cache are empty
  std::map<uint32_t, Graph> graphs_;   // by row bucket
  std::map<std::pair<uint32_t, bool>, Graph> skinny_graphs_;  // and by whether every row is a sequence of its own
  std::map<uint32_t, Graph> gemm_step_graphs_;
  struct PromptGraph {
    Graph graph;
    bool used = false;  // the chunk ran once, kernel by kernel
  };
  std::map<std::pair<uint32_t, bool>, PromptGraph> prompt_graphs_;  // by row bucket, and whether a row wants logits
  std::vector<exec::Row> running_;  // the rows of a pass that was started and not finished
  uint32_t output_count_ = 0;
  uint32_t selected_k_ = 0;    // candidates the last selection produced; 0: none yet
  uint32_t wanted_k_ = 64;     // what the next decode step selects
  uint32_t asked_k_ = 0;       // the most candidates anybody asked the last pass for
  bool has_log_sums_ = false;  // of the last pass: results_host_.log_sums is filled in
  std::vector<float> host_logits_;
  Profiler* profiler_ = nullptr;  // not owned; set only while a pass is profiled
};

// What make_cuda_executor does, for those who want to look inside.
std::unique_ptr<CudaExecutor> make_executor(std::shared_ptr<const model::Model> model,
                                            const exec::ExecutorOptions& options, const UploadProgress& progress);

}  // namespace carat::cuda
