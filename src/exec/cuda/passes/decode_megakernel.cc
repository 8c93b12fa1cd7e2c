// Decode of a single row by the token kernel.
#include <utility>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/passes/megakernel_program.h"

namespace carat::cuda {

void CudaExecutor::build_megakernel_program() {
  const MegakernelModel model{model_->config(),    weights_,       token_,        caches_,
                              frequencies_.data(), pairs_sliding_, pairs_global_, out_.logits};
  MegakernelProgram program = megakernel_program(model, gpu_.sm_count, gpu_.shared_memory);
  const std::vector<MegakernelStage>& stages = program.stages;
  CARAT_CHECK(stages.size() < kMegakernelMaxStages && stages.size() <= token_.stage_capacity);
  check(cudaMemcpy(token_.stages, stages.data(), stages.size() * sizeof(MegakernelStage), cudaMemcpyHostToDevice),
        "uploading the stages of a token");
  megakernel_job_ = megakernel_job(model, program);
  megakernel_job_.control.token = gemv_buffers_.control->tokens;
  megakernel_job_.control.position = gemv_buffers_.control->positions;
  megakernel_job_.control.sequence = gemv_buffers_.control->sequences;
  megakernel_job_.non_finite = results_.non_finite;
  megakernel_marks_ = std::move(program.marks);
  megakernel_needs_ = program.needs;
}

void CudaExecutor::run_decode_megakernel(std::span<const exec::Row> rows) {
  fill_control(rows, 1);
  output_count_ = 1;
  run_step(graphs_[1], [&] { megakernel_step(); });
  selected_k_ = wanted_k_;
}

std::vector<double> CudaExecutor::trace_megakernel(const exec::Row& row) {
  CARAT_CHECK(plan_.use_megakernel && row.sequence < plan_.sequences && row.position < plan_.context);
  const DeviceArray<uint64_t> clocks(megakernel_marks_.size() + 1, "the clock at each stage of a token");
  fill_control({&row, 1}, 1);
  megakernel_step();  // a first run: instructions and tables are on the chip afterwards
  const MegakernelTrace trace{.clocks = clocks.data()};
  megakernel_step(&trace);
  trace.selected.synchronise();
  std::vector<uint64_t> clock(megakernel_marks_.size() + 1);
  check(cudaMemcpy(clock.data(), clocks.data(), clocks.bytes(), cudaMemcpyDeviceToHost), "reading the clock");
  const double seconds = 1e-3 * static_cast<double>(trace.computed.since(trace.started));
  const auto cycles = static_cast<double>(clock.back() - clock.front());
  std::vector<double> steps;
  for (size_t i = 0; i < megakernel_marks_.size(); ++i) {
    steps.push_back(seconds * static_cast<double>(clock[i + 1] - clock[i]) / cycles);
  }
  steps.push_back(1e-3 * static_cast<double>(trace.selected.since(trace.computed)));
  return steps;
}

// A decode step of one row: the kernel and the selection of candidates.
void CudaExecutor::megakernel_step(const MegakernelTrace* trace) {
  check(cudaMemcpyAsync(gemv_buffers_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice,
                        stream_.get()),
        "uploading the row");
  MegakernelJob job = megakernel_job_;
  if (trace != nullptr) {
    job.trace = trace->clocks;
    trace->started.record(stream_.get());
  }
  run_megakernel(job, megakernel_needs_, gpu_.sm_count, LaunchConfig{stream_.get(), false});
  if (trace != nullptr) trace->computed.record(stream_.get());
  select_best(out_.logits, 1, widths_.V, &gemv_buffers_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, LaunchConfig{stream_.get(), false});
  if (trace != nullptr) trace->selected.record(stream_.get());
}

}  // namespace carat::cuda
