#include "exec/cuda/executor/executor_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/cuda_executor.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/plan/rope_frequencies.h"

namespace carat::cuda {

namespace {

// The plan is made without CUDA's headers and kernel launches.
static_assert(kElementBytes<__half> == sizeof(__half) && kElementBytes<__nv_bfloat16> == sizeof(__nv_bfloat16) &&
              kElementBytes<float2> == sizeof(float2) && DecodeControl::kRows == kGemvRows);

// Norms bound the values that go into fp16; refuse weights for which that bound is not safe.
void check_half_range(const model::Model& model) {
  constexpr float kLargestHalf = 65504.0f;
  for (const model::Layer& layer : model.config().layers) {
    const model::LayerWeights& weights = model.weights().layers[layer.index];
    for (const model::Vector* norm : {&weights.attn_q_norm, &weights.attn_k_norm}) {
      for (const float value : *norm) {
        if (!(std::fabs(value) * std::sqrt(static_cast<float>(layer.hd)) < kLargestHalf)) {
          fail(ErrorCode::kUnsupported, "blk.{}: a query or key norm weight of {} could overflow the fp16 cache",
               layer.index, value);
        }
      }
    }
    if (layer.hd % 16 != 0 || layer.hd > 512) {
      fail(ErrorCode::kUnsupported,
           "blk.{}: head size {} cannot run on the GPU (a multiple of 16 up to 512 can); use --device cpu", layer.index,
           layer.hd);
    }
  }
  if (model.config().experts > kMaxExperts || model.config().experts_used > kMaxExpertsUsed) {
    fail(ErrorCode::kUnsupported, "{} experts with {} used cannot run on the GPU; use --device cpu",
         model.config().experts, model.config().experts_used);
  }
}

[[noreturn]] void refuse(const Plan& plan, const model::Model& model) {
  const uint32_t on_gpu = model.config().L - plan.placement.first_layer;
  std::string remedy = plan.largest_context == 0
                           ? std::string("no context is small enough")
                           : fmt::format("the largest context that fits is {} (-c)", plan.largest_context);
  if (plan.placement.first_layer < plan.split.last_possible) {
    remedy += "; -ngl auto runs layers that do not fit on the CPU";
  }
  fail(ErrorCode::kOutOfMemory,
       "{} of {} layers need {} bytes of GPU memory with a context of {} but {} are free; {}; `carat plan` shows the "
       "parts",
       on_gpu, model.config().L, plan.total_bytes, plan.context, plan.free_bytes, remedy);
}

using Clock = std::chrono::steady_clock;

void log_loading(spdlog::logger& log, const DeviceWeights& weights, Clock::time_point started) {
  const double gigabytes = static_cast<double>(weights.uploaded().bytes) / 1e9, upload = weights.uploaded().seconds,
               all = std::chrono::duration<double>(Clock::now() - started).count();
  log.info(
      "{:.2f} GB of weights on the GPU in {:.2f} s ({:.1f} GB/s), copies for products in {:.2f} s, all ready in {:.2f} "
      "s",
      gigabytes, upload, gigabytes / upload, weights.copies_seconds(), all);
}

exec::ExecutorOptions resolved(exec::ExecutorOptions options, const Plan& plan) {
  options.chunk = plan.chunk;
  options.outputs = plan.outputs;
  return options;
}

}  // namespace

CudaExecutor::CudaExecutor(std::shared_ptr<const model::Model> model, exec::ExecutorOptions options,
                           const GpuFacts& gpu, Plan plan, const UploadProgress& progress)
    : model_(std::move(model)),
      options_(resolved(std::move(options), plan)),
      gpu_(gpu),
      plan_(std::move(plan)),
      widths_(model_->config()),
      table_(model_->config(), options_),
      weights_(*model_, plan_.placement, plan_.products, progress),
      gemm_(plan_.workspace_bytes) {
  allocate();
  search_algorithms();  // before anything is kept in scratch memory, which it uses
  if (plan_.gemm.kind == GemmKind::kFp8) require_fp8();
  if (plan_.use_megakernel) build_megakernel_program();
  if (plan_.cluster_ple) norm_bounds_ = bounds_after_layers();
  // Passes run on a stream of their own, which does not wait for what was cleared and copied above: a copy from
  // ordinary memory returns when the driver has taken the bytes, not when they are on the GPU.
  check(cudaDeviceSynchronize(), "preparing the GPU");
  if (layers_on_cpu() == 0) return;
  exec::ExecutorOptions host = options_;
  host.kernels = {};  // those of the GPU
  cpu_layers_ = exec::make_cpu_layers(model_, host, layers_on_cpu());
  entering_ = PinnedMemory(uint64_t{std::max(plan_.chunk, kSkinnyRows)} * widths_.d * sizeof(float),
                           "what the layers on the CPU hand over");
}

// A pass may still be running: nothing is freed before it has ended.
CudaExecutor::~CudaExecutor() { cudaStreamSynchronize(stream_.get()); }

void CudaExecutor::allocate() {
  const model::Config& config = model_->config();
  scratch_ = DeviceMemory(plan_.scratch_bytes, "scratch memory");
  check(cudaMemset(scratch_.data(), 0, scratch_.bytes()), "clearing scratch memory");
  Carver carver(scratch_.data());
  prompt_buffers_.carve(carver, widths_, plan_.chunk, plan_.outputs);
  if (const uint32_t rows = plan_.ple_cache_rows; rows > 0) {
    ple_cache_ = PleCache(rows);
    ple_cache_rows_ = carve_ple_rows(carver, weights_.ple_table.packing, weights_.ple_table.cols, rows);
  }
  if (plan_.gemm.kind == GemmKind::kMmq) mmq_.carve(carver, widths_, plan_.chunk, plan_.gemm.activations);
  if (plan_.gemm.kind == GemmKind::kFp8) fp8_.carve(carver, widths_, plan_.chunk);
  gemv_buffers_.carve(carver, widths_);
  if (plan_.sparse) sparse_.carve(carver, config, *plan_.sparse, plan_.context, plan_.chunk);
  skinny_.carve(carver, widths_, plan_.skinny_rows);
  out_.carve(carver, widths_, plan_.outputs, attention_partial_elements(config, plan_, gpu_.sm_count),
             attention_counters(config, plan_));
  if (plan_.use_megakernel) token_.carve(carver, widths_, config, gpu_.sm_count);
  if (!plan_.placement.resident_bf16) {
    unpacked_ = reinterpret_cast<__nv_bfloat16*>(scratch_.as<char>() + carver.used());
  }

  cache_memory_ = DeviceMemory(plan_.kv_bytes, "the KV cache");
  check(cudaMemset(cache_memory_.data(), 0, cache_memory_.bytes()), "clearing the KV cache");
  caches_.resize(config.L);
  auto* next = cache_memory_.as<char>();
  const auto take = [&next]<typename T>(T*& plane, uint64_t elements) {
    plane = reinterpret_cast<T*>(next);
    next += elements * sizeof(T);  // rows of 64 cells and more: the next plane is as well aligned
  };
  const model::KvGeometry geometry = kv_geometry(config, plan_.context, plan_.chunk);
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index < layers_on_cpu()) continue;
    KvView& cache = caches_[layer.index];
    cache.cells = geometry.cells(layer.index);
    const uint64_t rows = geometry.rows(layer.index, cached_sequences(plan_.sequences));
    if (plan_.kv_format == quant::Format::kQ8_0) {
      take(cache.k_quants, rows * layer.hd);
      take(cache.v_quants, rows * layer.hd);
      take(cache.k_scales, rows * kv_scale_columns(layer.hd));
      take(cache.v_scales, rows * kv_scale_columns(layer.hd));
    } else {
      take(cache.k, rows * layer.hd);
      take(cache.v, rows * layer.hd);
    }
  }
  CARAT_CHECK(next == cache_memory_.as<char>() + plan_.kv_bytes);

  std::vector<double> frequencies = inverse_frequencies(*model_, true);
  pairs_sliding_ = static_cast<uint32_t>(frequencies.size());
  const std::vector<double> global = inverse_frequencies(*model_, false);
  pairs_global_ = static_cast<uint32_t>(global.size());
  frequencies.insert(frequencies.end(), global.begin(), global.end());
  frequencies_ = DeviceArray<double>(frequencies.size(), "rotation frequencies");
  check(cudaMemcpy(frequencies_.data(), frequencies.data(), frequencies_.bytes(), cudaMemcpyHostToDevice),
        "uploading rotation frequencies");

  staging_ = PinnedMemory(prompt_control_bytes(plan_.chunk, plan_.outputs), "row staging");
  Carver measure;
  results_.carve(measure, plan_.outputs);
  results_memory_ = PinnedMemory(measure.used(), "results");
  Carver host_carver(results_memory_.data()), device_carver(results_memory_.device_data());
  results_host_.carve(host_carver, plan_.outputs);
  results_.carve(device_carver, plan_.outputs);
  control_ = PinnedMemory(sizeof(DecodeControl), "decode control");
  skinny_control_ = PinnedMemory(sizeof(SkinnyControl), "batched decode control");
  host_logits_.resize(config.V);
}

AttentionShape CudaExecutor::shape_of(const model::Layer& layer) const {
  return cuda::shape_of(model_->config(), layer);
}

void CudaExecutor::check_cancelled() const {
  if (options_.cancelled == nullptr || !options_.cancelled->load(std::memory_order_relaxed)) return;
  if (!stream_.capturing()) stream_.synchronise();
  fail(ErrorCode::kInterrupted, "interrupted");
}

void CudaExecutor::make_rope_tables(const RowArrays& rows, uint32_t count) {
  if (pairs_sliding_ > 0) {
    rope_table(rows.positions, count, frequencies_.data(), pairs_sliding_, rows.rope_sliding, launch_config());
  }
  if (pairs_global_ > 0) {
    rope_table(rows.positions, count, frequencies_.data() + pairs_sliding_, pairs_global_, rows.rope_global,
               launch_config());
  }
}

QkvPost CudaExecutor::qkv_post_job(uint32_t index, const RowArrays& rows, bool write_kv) const {
  const model::Layer& layer = model_->config().layers[index];
  const DeviceLayer& weights = weights_.layers[index];
  QkvPost job;
  job.shape = shape_of(layer);
  job.v_from_k = layer.v_from_k;
  job.only_q = !write_kv || !layer.owns_kv;
  job.eps = model_->config().eps;
  job.q_norm = weights.q_norm;
  job.k_norm = weights.k_norm;
  job.table = layer.sliding ? rows.rope_sliding : rows.rope_global;
  job.pairs = layer.sliding ? pairs_sliding_ : pairs_global_;
  job.positions = rows.positions;
  job.sequences = rows.sequences;
  job.kv = kv_of(index);
  return job;
}

void CudaExecutor::start(std::span<const exec::Row> rows) {
  CARAT_CHECK(running_.empty());
  table_.check(rows);
  output_count_ = 0;
  selected_k_ = asked_k_ = 0;
  has_log_sums_ = false;
  table_.begin(rows);
  std::fill_n(results_host_.non_finite, plan_.outputs, 0u);
  check_cancelled();
  const PassClass pass = classify(rows, plan_, profiler_ != nullptr);
  if (cpu_layers_ != nullptr) run_cpu_layers(rows, pass.rows);
  switch (pass.kind) {
    case PassKind::kPrompt:
      run_prompt(rows, pass);
      break;
    case PassKind::kPromptBucket:
      run_prompt_bucket(rows, pass);
      break;
    case PassKind::kPromptGemv:
      run_prompt_gemv(rows, pass);
      break;
    case PassKind::kDecodeMegakernel:
      run_decode_megakernel(rows);
      break;
    case PassKind::kDecodeGemv:
      run_decode_gemv(rows, pass);
      break;
    case PassKind::kDecodeSkinny:
      run_decode_skinny(rows, pass);
      break;
    case PassKind::kDecodeGemm:
      run_decode_gemm(rows, pass);
      break;
  }
  running_.assign(rows.begin(), rows.end());
}

// The pass before has been waited for, so nothing reads the page-locked memory any more. count: rows of the pass.
void CudaExecutor::run_cpu_layers(std::span<const exec::Row> rows, uint32_t count) {
  const std::span<const float> stream = cpu_layers_->run(rows);
  float* to = std::copy(stream.begin(), stream.end(), entering_.as<float>());
  // Rows that pad a pass to its bucket need finite values of some kind.
  for (size_t row = rows.size(); row < count; ++row) to = std::copy_n(stream.data(), widths_.d, to);
}

void CudaExecutor::finish() {
  const std::vector<exec::Row> rows = std::move(running_);
  running_.clear();
  if (rows.empty()) return;
  stream_.synchronise();
  table_.commit(rows);
}

bool CudaExecutor::is_finite(uint32_t output) const {
  CARAT_CHECK(output < output_count_);
  return results_host_.non_finite[output] == 0;
}

std::span<const float> CudaExecutor::logits(uint32_t output) {
  CARAT_CHECK(output < output_count_);
  check(cudaMemcpyAsync(host_logits_.data(), out_.logits + uint64_t{output} * widths_.V, widths_.V * sizeof(float),
                        cudaMemcpyDeviceToHost, stream_.get()),
        "downloading logits");
  stream_.synchronise();
  return host_logits_;
}

void CudaExecutor::run_selection(uint32_t k) {
  auto* control = control_.as<DecodeControl>();
  control->k = k;
  check(cudaMemcpyAsync(&gemv_buffers_.control->k, &control->k, sizeof k, cudaMemcpyHostToDevice, stream_.get()),
        "uploading the number of candidates");
  select_best(out_.logits, output_count_, widths_.V, &gemv_buffers_.control->k, out_.select, results_.tokens,
              results_.values, results_.counts, LaunchConfig{stream_.get(), false});
  mark(Step::kSelect, 0, output_count_, true);
  stream_.synchronise();
  selected_k_ = k;
}

void CudaExecutor::best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) {
  CARAT_CHECK(output < output_count_);
  k = std::min(k, widths_.V);
  out.clear();
  if (k == 0) return;
  if (k <= kSelectMax) {
    wanted_k_ = asked_k_ = std::max(asked_k_, k);
    if (selected_k_ < k) run_selection(k);
    if (results_host_.counts[output] != kSelectOverflow) {
      const uint64_t first = uint64_t{output} * kSelectMax;
      for (uint32_t i = 0; i < k; ++i)
        out.push_back({results_host_.tokens[first + i], results_host_.values[first + i]});
      return;
    }
  }
  exec::select_best(logits(output), k, out);
}

void CudaExecutor::logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) {
  CARAT_CHECK(output < output_count_);
  out.clear();
  for (size_t first = 0; first < tokens.size(); first += kSelectMax) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(kSelectMax, tokens.size() - first));
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(first), count, results_host_.wanted);
    pick_logits(out_.logits + uint64_t{output} * widths_.V, results_.wanted, count, results_.wanted_values,
                LaunchConfig{stream_.get(), false});
    stream_.synchronise();
    out.insert(out.end(), results_host_.wanted_values, results_host_.wanted_values + count);
  }
}

// Of all outputs at once: whoever asks for one of them mostly asks for others, too, and a launch costs more than a row.
double CudaExecutor::log_sum_exp(uint32_t output) {
  CARAT_CHECK(output < output_count_);
  if (!has_log_sums_) {
    log_sum_parts(out_.logits, output_count_, widths_.V, results_.log_sums, LaunchConfig{stream_.get(), false});
    stream_.synchronise();
    has_log_sums_ = true;
  }
  return join_log_sums({results_host_.log_sums + uint64_t{output} * kLogSumParts, kLogSumParts});
}

std::unique_ptr<CudaExecutor> make_executor(std::shared_ptr<const model::Model> model,
                                            const exec::ExecutorOptions& options, const UploadProgress& progress) {
  const auto started = Clock::now();
  std::string why;
  const auto gpu = query_gpu(&why);
  if (!gpu) fail(ErrorCode::kUnsupported, "no GPU can be used: {}", why);
  check_half_range(*model);
  const PlanRequest request{.context = options.context,
                            .sequences = options.sequences,
                            .chunk = options.chunk,
                            .outputs = options.outputs,
                            .gpu_layers = options.gpu_layers,
                            .kv_format = options.kv_format,
                            .kernels = options.kernels};
  Plan plan = make_plan(*model, *gpu, request);
  if (!plan.fits) refuse(plan, *model);
  if (options.log && plan.placement.first_layer > 0) {
    options.log->log(options.gpu_layers ? spdlog::level::info : spdlog::level::warn,
                     "layers 0 to {} run on the CPU: {}; {}", plan.placement.first_layer - 1, plan.split.reason,
                     cost_text(plan.split, kAssumedHostBandwidth, "an assumed"));
  }
  auto executor = std::make_unique<CudaExecutor>(std::move(model), options, *gpu, std::move(plan), progress);
  if (options.log) log_loading(*options.log, executor->weights(), started);
  return executor;
}

}  // namespace carat::cuda

namespace carat::exec {

bool cuda_available(std::string* why) { return cuda::query_gpu(why).has_value(); }

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                                             const std::function<void(uint64_t done, uint64_t total)>& progress) {
  return cuda::make_executor(std::move(model), options, progress);
}

}  // namespace carat::exec
