// Decode of a single row by the token kernel.
#include <utility>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor_state.h"
#include "exec/cuda/token_program.h"

namespace carat::cuda {

void CudaExecutor::build_token_program() {
  const TokenModel model{model_->config(),    weights_,       token_,        caches_,
                         frequencies_.data(), pairs_sliding_, pairs_global_, out_.logits};
  TokenProgram program = token_program(model, gpu_.sm_count, gpu_.shared_memory);
  const std::vector<TokenStage>& stages = program.stages;
  CARAT_CHECK(stages.size() < kTokenMaxStages && stages.size() <= token_.stage_capacity);
  check(cudaMemcpy(token_.stages, stages.data(), stages.size() * sizeof(TokenStage), cudaMemcpyHostToDevice),
        "uploading the stages of a token");
  token_job_ = token_job(model, program);
  token_job_.control.token = narrow_.control->tokens;
  token_job_.control.position = narrow_.control->positions;
  token_job_.control.sequence = narrow_.control->sequences;
  token_job_.non_finite = results_.non_finite;
  token_marks_ = std::move(program.marks);
  token_needs_ = program.needs;
}

std::vector<double> CudaExecutor::trace_token(const exec::Row& row) {
  CARAT_CHECK(plan_.use_token && row.sequence < plan_.sequences && row.position < plan_.context);
  const DeviceArray<uint64_t> clocks(token_marks_.size() + 1, "the clock at each stage of a token");
  fill_control({&row, 1}, 1);
  token_step();  // a first run: instructions and tables are on the chip afterwards
  const TokenTrace trace{.clocks = clocks.data()};
  token_step(&trace);
  trace.selected.synchronise();
  std::vector<uint64_t> clock(token_marks_.size() + 1);
  check(cudaMemcpy(clock.data(), clocks.data(), clocks.bytes(), cudaMemcpyDeviceToHost), "reading the clock");
  const double seconds = 1e-3 * static_cast<double>(trace.computed.since(trace.started));
  const auto cycles = static_cast<double>(clock.back() - clock.front());
  std::vector<double> steps;
  for (size_t i = 0; i < token_marks_.size(); ++i) {
    steps.push_back(seconds * static_cast<double>(clock[i + 1] - clock[i]) / cycles);
  }
  steps.push_back(1e-3 * static_cast<double>(trace.selected.since(trace.computed)));
  return steps;
}

// A decode step of one row: the kernel and the selection of candidates.
void CudaExecutor::token_step(const TokenTrace* trace) {
  check(cudaMemcpyAsync(narrow_.control, control_.data(), sizeof(DecodeControl), cudaMemcpyHostToDevice, stream_.get()),
        "uploading the row");
  TokenJob job = token_job_;
  if (trace != nullptr) {
    job.trace = trace->clocks;
    trace->started.record(stream_.get());
  }
  run_token(job, token_needs_, gpu_.sm_count, Launch{stream_.get(), false});
  if (trace != nullptr) trace->computed.record(stream_.get());
  select_best(out_.logits, 1, widths_.V, &narrow_.control->k, out_.select, results_.tokens, results_.values,
              results_.counts, Launch{stream_.get(), false});
  if (trace != nullptr) trace->selected.record(stream_.get());
}

}  // namespace carat::cuda
