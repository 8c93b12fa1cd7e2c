#include "engine/runner/runner_snapshot.h"

#include <algorithm>
#include <cmath>

namespace carat::engine {

namespace {
constexpr double kMemorySeconds = 2.0;
}

void PassCounts::add(double seconds_taken, uint64_t rows_run) {
  ++passes;
  seconds += seconds_taken;
  rows += rows_run;
  const auto class_of = [](const auto& bounds, double value) {
    return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
  };
  ++by_seconds[class_of(kSecondsBounds, seconds_taken)];
  ++by_rows[class_of(kRowsBounds, static_cast<double>(rows_run))];
}

void RunnerTotals::add_pass(const PassFigures& pass) {
  const PassMix mix = pass.prompt_rows == 0   ? PassMix::kDecode
                      : pass.decode_rows == 0 ? PassMix::kPrompt
                                              : PassMix::kMixed;
  passes[static_cast<size_t>(mix)].add(pass.seconds, uint64_t{pass.decode_rows} + pass.prompt_rows);
  prompt_tokens_run += pass.prompt_rows;
  generated_tokens += pass.tokens;
  mask_seconds += pass.mask_seconds;
}

void RunnerTotals::add_end(Ending ending, const SequenceFigures& figures) {
  ++ended[static_cast<size_t>(ending)];
  prompt_tokens_reused += figures.prefix_reused;
  drafted_tokens += figures.drafts.drafted;
  accepted_tokens += figures.drafts.accepted;
}

double RecentRate::at(double now) const { return rate_ * std::exp((updated_ - now) / kMemorySeconds); }

void RecentRate::add(double now, double events) {
  rate_ = at(now) + events / kMemorySeconds;
  updated_ = now;
}

}  // namespace carat::engine
