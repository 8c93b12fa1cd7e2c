#pragma once

// The CUDA executor's inside; included by its own source files only.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu_layers.h"
#include "exec/cuda/buffers.h"
#include "exec/cuda/device/facts.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/fp8_buffers.h"
#include "exec/cuda/kernels/batch_product.h"
#include "exec/cuda/kernels/gemm.h"
#include "exec/cuda/kernels/matvec.h"
#include "exec/cuda/kernels/mmq.h"
#include "exec/cuda/kernels/rope.h"
#include "exec/cuda/kernels/token.h"
#include "exec/cuda/mmq_buffers.h"
#include "exec/cuda/plan.h"
#include "exec/cuda/ple_cache.h"
#include "exec/cuda/profiler.h"
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
  std::span<const float> logits(uint32_t output) override;
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override;
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override;
  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }

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
  const std::vector<StepMark>& token_marks() const { return token_marks_; }
  std::vector<double> trace_token(const exec::Row& row);

 private:
  using WideResidual = ResidualNormOf<__nv_bfloat16>;

  // --- wide_pass.cc
  // Neighbouring tiles of one sequence.
  struct TileRun {
    uint32_t first, count;
    uint32_t sequence;
    uint32_t end;  // one past the last position
  };
  struct WidePass {
    uint32_t rows = 0;
    uint32_t asked = 0;     // rows somebody asked for; those after them pad the pass
    WideControl control{};  // on the device
    uint64_t control_bytes = 0;
    RowArrays arrays{};                            // those of the control block, and the rotations
    uint32_t tiles_sliding = 0, tiles_global = 0;  // 0 and 0: every row is a segment of its own
    std::vector<TileRun> global_runs;              // the same tiles as tiles_global counts
    uint32_t outputs = 0;                          // rows that want logits
    uint32_t slices = 0;                           // layers whose per-layer embeddings are there
    WideResidual pending{};                        // what the residual stream still has to absorb
    bool single_rows = false;                      // a decode step: every row is a sequence of its own
    bool normalised = false;                       // the input of the next layer is made already
  };
  void run_wide(std::span<const exec::Row> rows);
  void enter_wide(WidePass& pass);
  void wide_ple_input(WidePass& pass);
  void wide_layers(WidePass& pass, uint32_t stop);
  void wide_layer(uint32_t index, WidePass& pass, bool write_kv);
  void wide_keys_values(uint32_t index, WidePass& pass);
  void wide_attention(uint32_t index, const WidePass& pass);
  void wide_step_attention(uint32_t index, const WidePass& pass);
  void sparse_attention(const AttentionShape& shape, const KvView& kv, const WidePass& pass);
  void wide_feed_forward(uint32_t index, WidePass& pass);
  void wide_experts(uint32_t index, WidePass& pass);
  void wide_ple(uint32_t index, WidePass& pass);
  void wide_layer_end(uint32_t index, WidePass& pass);
  template <typename Kernel>
  void absorb(WidePass& pass, const float* next_norm, const Kernel& kernel);
  void normalise(WidePass& pass, const float* next_norm, __nv_bfloat16* out);
  void normalise(WidePass& pass, const float* next_norm, const MatrixGroup& readers);
  bool by_mmq(const MatrixGroup& group) const;  // its products read quantised weights and activations
  // Activations for the products of a group that wants them in a form of its own.
  void round_for(const MatrixGroup& readers, const __nv_bfloat16* values, uint32_t rows);
  MmqRows mmq_rows() const;
  void product(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows);
  void product(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a, __nv_bfloat16* out,
               uint32_t rows);
  const __nv_bfloat16* weights_bf16(const std::vector<PackedView>& parts, const __nv_bfloat16* resident);
  void finish_wide(std::span<const exec::Row> wanting, WidePass& pass, uint32_t stopped_at);
  bool goes_on_narrow(uint32_t outputs, uint32_t stopped_at) const;
  void upload_decode_control();
  void head_from_hidden();

  // --- wide_rows.cc
  WidePass stage_wide(std::span<const exec::Row> rows, uint32_t slices, uint32_t bucket = 0);
  void write_control(std::span<const exec::Row> rows, std::span<const Segment> sliding, std::span<const Segment> global,
                     WidePass& pass);
  uint32_t tile_rows(bool sliding) const;
  uint32_t bucket_of(std::span<const exec::Row> rows) const;
  void run_prompt(std::span<const exec::Row> rows, uint32_t bucket, uint32_t stop);
  void prompt_chunk(WidePass pass, uint32_t stop);

  // --- wide_step.cc
  uint32_t wide_step_bucket(std::span<const exec::Row> rows) const;
  void run_wide_step(std::span<const exec::Row> rows, uint32_t bucket);
  void wide_step(WidePass pass);

  // --- wide_products.cc
  bool dequantises(const MatrixGroup& group) const;
  void product_by_warpgroups(const MatrixGroup& group, size_t first, size_t last, const __nv_bfloat16* a,
                             __nv_bfloat16* out, uint32_t rows);
  void gate_up_by_warpgroups(const MatrixGroup& group, const __nv_bfloat16* a, __nv_bfloat16* out, uint32_t rows);
  void experts_by_warpgroups(uint32_t index, const WidePass& pass);
  void experts_by_mma(uint32_t index, const WidePass& pass);
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

  // --- narrow_pass.cc
  struct NarrowPass {
    uint32_t rows = 0;
    uint32_t buffer = 0;  // which of the two x buffers holds the residual stream
    ResidualNorm pending{};
  };
  void run_narrow(std::span<const exec::Row> rows);
  void fill_control(std::span<const exec::Row> rows, uint32_t bucket);
  void decode_step(uint32_t rows);
  NarrowPass enter_narrow(uint32_t rows);
  NarrowPass begin_narrow(uint32_t rows);
  void narrow_ple(uint32_t rows);
  void narrow_layer(uint32_t index, NarrowPass& pass, bool write_kv);
  void narrow_experts(uint32_t index, NarrowPass& pass);
  void narrow_head(NarrowPass& pass);
  void apply(NarrowPass& pass, const float* next_norm, MatvecJob& job);
  void quantise_input(MatvecJob& job, const float* floats, uint32_t cols);
  void multiply(const MatvecJob& job);

  // --- every way to decode
  static bool of_different_sequences(std::span<const exec::Row> rows);
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

  // --- token_pass.cc
  void build_token_program();
  struct TokenTrace {
    uint64_t* clocks = nullptr;  // [stages + 1]
    Event started{true}, computed{true}, selected{true};
  };
  void token_step(const TokenTrace* trace = nullptr);

  // --- batch_pass.cc
  struct BatchPass {
    uint32_t rows = 0;
    uint32_t buffer = 0;  // which of the two x buffers holds the residual stream
    ResidualNorm pending{};
    bool single_rows = false;  // every row is a sequence of its own
    bool normalised = false;   // the input of the next layer is made already
  };
  bool runs_batched(std::span<const exec::Row> rows) const;
  void run_batch(std::span<const exec::Row> rows);
  void batch_step(uint32_t rows, bool single_rows);
  BatchPass begin_batch(uint32_t rows);
  void batch_layer(uint32_t index, BatchPass& pass);
  void batch_attention(uint32_t index, BatchPass& pass);
  void batch_heads(uint32_t index, const BatchPass& pass);
  void batch_feed_forward(uint32_t index, BatchPass& pass);
  void batch_ple(uint32_t index, BatchPass& pass);
  void batch_layer_end(uint32_t index, BatchPass& pass);
  const float* norm_after(uint32_t index) const;
  std::vector<float> bounds_after_layers() const;
  BatchRows normalise(BatchPass& pass, const float* next_norm, uint32_t* clear);
  BatchJob to_stream(const MatrixGroup& weights, uint32_t rows, const float* activations, uint32_t leading,
                     uint32_t* largest) const;
  void multiply(const BatchJob& job);

  // --- profiling: says what was just launched; nothing but a comparison when nothing is profiled
  void mark(Step step, uint32_t layer, uint64_t extent, bool narrow) {
    if (profiler_ != nullptr) profiler_->mark({step, layer, extent, narrow}, stream_.get());
  }
  void mark(Step step, uint32_t layer, const WidePass& pass) { mark(step, layer, pass.asked, false); }
  void mark(Step step, uint32_t layer, const NarrowPass& pass) { mark(step, layer, pass.rows, true); }

  // --- executor_state.cc
  // Kernels that overlap cannot be timed one by one.
  Launch how() const { return {stream_.get(), plan_.overlap && profiler_ == nullptr}; }
  // For kernels of a batched step.
  Launch how_in_step() const {
    Launch how = this->how();
    how.shared_percent = kStepSharedPercent;
    return how;
  }
  KvView kv_of(uint32_t layer) const { return caches_[model_->config().layers[layer].kv_source]; }
  AttentionShape shape_of(const model::Layer& layer) const;
  void check_cancelled() const;
  void allocate();
  uint32_t layers_on_cpu() const { return plan_.placement.first_layer; }
  void run_cpu_layers(std::span<const exec::Row> rows);
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
  PinnedMemory control_, batch_control_;
  std::unique_ptr<exec::CpuLayers> cpu_layers_;  // null when all layers are on the GPU
  PinnedMemory entering_;                        // [max(chunk, 64), d] fp32: what they hand over
  WideBuffers wide_{};
  PleCache ple_cache_;           // in use where the per-layer-embedding table is in host memory
  PackedView ple_cache_rows_{};  // its rows
  MmqBuffers mmq_{};
  Fp8Buffers fp8_{};
  SearchReport search_report_;
  NarrowBuffers narrow_{};
  SparseBuffers sparse_{};  // in use where the plan has sparse attention
  BatchBuffers batch_{};
  std::vector<float> norm_bounds_;  // [L]: bounds_after_layers()
  OutputBuffers out_{};
  TokenBuffers token_{};
  std::vector<StepMark> token_marks_;  // what each stage of the token kernel counts as
  TokenJob token_job_{};               // without the clock
  TokenBuild token_needs_;
  __nv_bfloat16* unpacked_ = nullptr;                        // weights of one product when there are no resident copies
  std::vector<KvView> caches_;                               // [L]; layers without a cache are empty
  std::map<uint32_t, Graph> graphs_;                         // by row bucket
  std::map<std::pair<uint32_t, bool>, Graph> batch_graphs_;  // and by whether every row is a sequence of its own
  std::map<uint32_t, Graph> wide_graphs_;
  struct PromptGraph {
    Graph graph;
    bool used = false;  // the chunk ran once, kernel by kernel
  };
  std::map<std::pair<uint32_t, bool>, PromptGraph> prompt_graphs_;  // by row bucket, and whether a row wants logits
  std::vector<exec::Row> running_;  // the rows of a pass that was started and not finished
  uint32_t output_count_ = 0;
  uint32_t selected_k_ = 0;  // candidates the last selection produced; 0: none yet
  uint32_t wanted_k_ = 64;   // what the next decode step selects
  std::vector<float> host_logits_;
  Profiler* profiler_ = nullptr;  // not owned; set only while a pass is profiled
};

// What make_cuda_executor does, for those who want to look inside.
std::unique_ptr<CudaExecutor> make_executor(std::shared_ptr<const model::Model> model,
                                            const exec::ExecutorOptions& options, const UploadProgress& progress);

}  // namespace carat::cuda
