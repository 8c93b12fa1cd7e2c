#include "exec/cuda/profile/profile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include "base/error.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/profile/ceilings.h"

namespace carat::cuda {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// Times and work by family, added up over passes.
class FamilyTable {
 public:
  explicit FamilyTable(const CudaExecutor& executor) : model_(executor.model()), plan_(executor.plan()) {
    for (uint32_t i = 0; i < kFamilies; ++i) families_[i].name = family_name(static_cast<Family>(i));
  }

  // The mean over the profiler's runs.
  void add(const Profiler& profiler, const PassRows& rows) {
    add(profiler.marks(), profiler.seconds(), profiler.runs(), rows);
  }

  void add(const std::vector<StepMark>& marks, const std::vector<double>& seconds, uint32_t runs,
           const PassRows& rows) {
    for (size_t i = 0; i < marks.size(); ++i) {
      const StepMark& mark = marks[i];
      exec::ProfileFamily& family = families_[static_cast<size_t>(family_of(mark, model_.config()))];
      const Work work = work_of(mark, rows, model_, plan_);
      family.seconds += seconds[i] / runs;
      family.bytes += work.bytes;
      family.flops += work.flops;
      ++family.steps;
    }
  }

  std::vector<exec::ProfileFamily> take() const {
    std::vector<exec::ProfileFamily> ran;
    std::copy_if(families_.begin(), families_.end(), std::back_inserter(ran),
                 [](const exec::ProfileFamily& family) { return family.steps > 0; });
    return ran;
  }

 private:
  const model::Model& model_;
  const Plan& plan_;
  std::array<exec::ProfileFamily, kFamilies> families_;
};

// Runs one sequence of pseudo-random tokens and measures it with and without marks.
class ProfileRun {
 public:
  ProfileRun(CudaExecutor& executor, const exec::ProfileRequest& request) : executor_(executor), request_(request) {}

  exec::ProfilePhase prefill() {
    exec::ProfilePhase phase;
    phase.name = "prefill";
    phase.tokens = request_.prompt;
    run_prompt();  // loads modules, chooses algorithms
    std::vector<double> samples;
    for (uint32_t i = 0; i < request_.repetitions; ++i) {
      executor_.truncate(0, 0);
      const auto start = Clock::now();
      run_prompt();
      samples.push_back(seconds_since(start));
    }
    phase.seconds = median(samples);

    const uint32_t passes = (request_.prompt + chunk() - 1) / chunk();
    std::vector<Profiler> profilers;
    for (uint32_t i = 0; i < passes; ++i) profilers.emplace_back(false);
    for (uint32_t i = 0; i < request_.repetitions; ++i) {
      executor_.truncate(0, 0);
      profile_prompt(profilers);
    }
    FamilyTable table(executor_);
    for (uint32_t i = 0; i < passes; ++i) {
      table.add(profilers[i], {i * chunk(), std::min(chunk(), request_.prompt - i * chunk())});
    }
    phase.families = table.take();
    return phase;
  }

  exec::ProfilePhase decode() {
    if (executor_.length(0) == 0) run_prompt_of(1);
    exec::ProfilePhase phase;
    phase.name = "decode";
    phase.tokens = 1;
    phase.depth = executor_.length(0);
    run_row();  // captures the graph
    std::vector<double> samples;
    for (uint32_t i = 0; i < request_.generate; ++i) {
      const auto start = Clock::now();
      run_row();
      samples.push_back(seconds_since(start));
    }
    phase.seconds = median(samples);
    FamilyTable table(executor_);
    if (executor_.plan().use_gemv) {
      // In the middle of what was generated, so that keys and values are those of the average token.
      const uint32_t position = phase.depth + request_.generate / 2;
      phase.graph_seconds = replay(position);
      if (executor_.plan().use_megakernel) {
        // One kernel, so no marks between launches: it notes the clock at each stage itself.
        trace_megakernel(position, table);
      } else {
        Profiler profiler(true);
        replay_profiled(position, profiler);
        table.add(profiler, {position, 1});
      }
    } else {
      Profiler profiler(false);
      const uint32_t first = executor_.length(0);
      for (uint32_t i = 0; i < request_.repetitions; ++i) profile_pass({next_row(true)}, profiler, true);
      table.add(profiler, {first, 1});
    }
    phase.families = table.take();
    return phase;
  }

 private:
  uint32_t chunk() const { return executor_.options().chunk; }

  int32_t next_token() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int32_t>((state_ >> 33) % executor_.model().config().V);
  }

  exec::Row next_row(bool wants_logits) { return {next_token(), executor_.length(0), 0, wants_logits}; }

  std::vector<exec::Row> rows_of(uint32_t count, bool last) {
    std::vector<exec::Row> rows;
    const uint32_t first = executor_.length(0);
    for (uint32_t i = 0; i < count; ++i) rows.push_back({next_token(), first + i, 0, last && i + 1 == count});
    return rows;
  }

  void choose() { executor_.best(0, 1, best_); }

  void run_prompt_of(uint32_t count) {
    for (uint32_t done = 0; done < count; done += chunk()) {
      executor_.forward(rows_of(std::min(chunk(), count - done), done + chunk() >= count));
    }
    choose();
  }
  void run_prompt() { run_prompt_of(request_.prompt); }

  void run_row() {
    const exec::Row row = next_row(true);
    executor_.forward({&row, 1});
    choose();
  }

  void profile_pass(const std::vector<exec::Row>& rows, Profiler& profiler, bool last) {
    executor_.set_profiler(&profiler);
    profiler.start(executor_.stream().get());
    executor_.forward(rows);
    if (last) choose();
    executor_.set_profiler(nullptr);
    executor_.stream().synchronise();
    profiler.collect();
  }

  void profile_prompt(std::vector<Profiler>& profilers) {
    for (uint32_t i = 0; i < profilers.size(); ++i) {
      const uint32_t count = std::min(chunk(), request_.prompt - i * chunk());
      const bool last = i + 1 == profilers.size();
      profile_pass(rows_of(count, last), profilers[i], last);
    }
  }

  // Seconds of one step when the GPU is never kept waiting.
  double replay(uint32_t position) {
    const Graph graph = executor_.capture_step({next_token(), position, 0, true}, nullptr);
    const uint32_t times = std::max(16u, request_.generate);
    const Event start(true), stop(true);
    graph.launch(executor_.stream().get());
    start.record(executor_.stream().get());
    for (uint32_t i = 0; i < times; ++i) graph.launch(executor_.stream().get());
    stop.record(executor_.stream().get());
    stop.synchronise();
    return 1e-3 * static_cast<double>(stop.since(start)) / times;
  }

  void trace_megakernel(uint32_t position, FamilyTable& table) {
    std::vector<double> sums;
    for (uint32_t i = 0; i < request_.repetitions; ++i) {
      const std::vector<double> seconds = executor_.trace_megakernel({next_token(), position, 0, true});
      sums.resize(seconds.size());
      std::transform(seconds.begin(), seconds.end(), sums.begin(), sums.begin(), std::plus<>());
    }
    std::vector<StepMark> stages = executor_.megakernel_marks();
    stages.push_back({Step::kSelect, 0, 1, true});
    // Matrices of one step that differ in their packing are stages of their own, but the step is done once.
    std::vector<StepMark> steps;
    std::vector<double> seconds;
    for (size_t i = 0; i < stages.size(); ++i) {
      const bool goes_on = i > 0 && stages[i].step == stages[i - 1].step && stages[i].layer == stages[i - 1].layer;
      if (!goes_on) {
        steps.push_back(stages[i]);
        seconds.push_back(0.0);
      }
      seconds.back() += sums[i];
    }
    table.add(steps, seconds, request_.repetitions, {position, 1});
  }

  void replay_profiled(uint32_t position, Profiler& profiler) {
    const Graph graph = executor_.capture_step({next_token(), position, 0, true}, &profiler);
    graph.launch(executor_.stream().get());
    executor_.stream().synchronise();
    for (uint32_t i = 0; i < std::max(16u, request_.generate); ++i) {
      graph.launch(executor_.stream().get());
      executor_.stream().synchronise();
      profiler.collect();
    }
  }

  CudaExecutor& executor_;
  const exec::ProfileRequest& request_;
  uint64_t state_ = 1;
  std::vector<exec::Candidate> best_;
};

}  // namespace

Graph CudaExecutor::capture_step(const exec::Row& row, Profiler* profiler) {
  CARAT_CHECK(plan_.use_gemv && row.sequence < plan_.sequences && row.position < plan_.context);
  fill_control({&row, 1}, 1);
  const bool megakernel = classify({&row, 1}, plan_, profiler != nullptr).kind == PassKind::kDecodeMegakernel;
  const auto step = [&] { megakernel ? megakernel_step() : gemv_step(1); };
  step();  // sets kernel attributes, which a capture cannot
  stream_.synchronise();
  // Whatever happens, passes after this one are not profiled.
  struct Profiled {
    CudaExecutor& executor;
    ~Profiled() { executor.set_profiler(nullptr); }
  };
  return Graph::capture(stream_.get(), [&] {
    const Profiled scope{*this};
    set_profiler(profiler);
    if (profiler != nullptr) profiler->start(stream_.get());
    step();
  });
}

}  // namespace carat::cuda

namespace carat::exec {

ProfileReport profile_cuda(std::shared_ptr<const model::Model> model, const ExecutorOptions& options,
                           const ProfileRequest& request,
                           const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (request.prompt == 0 && request.generate == 0) {
    fail(ErrorCode::kBadArgument, "nothing to profile: -p and -n are both zero");
  }
  if (request.repetitions == 0) fail(ErrorCode::kBadArgument, "-r must be at least 1");
  std::string why;
  const auto gpu = cuda::query_gpu(&why);
  if (!gpu) fail(ErrorCode::kUnsupported, "no GPU can be used: {}", why);
  ProfileReport report;
  // Before the model takes the memory.
  report.ceilings = cuda::measure_ceilings(*gpu);

  if (options.gpu_layers && *options.gpu_layers < model->config().L) {
    fail(ErrorCode::kBadArgument, "-ngl {}: a profile is of a model that is on the GPU as a whole",
         *options.gpu_layers);
  }
  ExecutorOptions sized = options;
  sized.gpu_layers = kAllLayers;
  const uint64_t needed = uint64_t{request.prompt} + request.generate + request.repetitions + 2;
  sized.context = static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(options.context, needed), UINT32_MAX));
  const auto executor = cuda::make_executor(std::move(model), sized, progress);
  report.gpu = gpu->name;
  report.capability = gpu->capability;
  report.model = executor->model().file().path();
  report.context = executor->options().context;
  report.chunk = executor->options().chunk;
  for (const cuda::KernelDecision& made : executor->plan().kernels) {
    report.kernels.push_back({made.slot, made.name, made.reason});
  }
  cuda::ProfileRun run(*executor, request);
  if (request.prompt > 0) report.phases.push_back(run.prefill());
  if (request.generate > 0) report.phases.push_back(run.decode());
  return report;
}

}  // namespace carat::exec
