#pragma once

#include <array>
#include <cstdint>

namespace carat::engine {

// What a pass has to do, as far as its time depends on it.
struct PassLoad {
  uint32_t decode_rows = 0;
  uint64_t decode_depth = 0;  // the sum of their positions: how many keys they attend to
  uint32_t prompt_rows = 0;
  uint64_t prompt_depth = 0;

  void add_decode_row(uint32_t position) { ++decode_rows, decode_depth += position; }
  // `rows` at positions from `first` on.
  void add_prompt_rows(uint32_t first, uint32_t rows) {
    prompt_rows += rows;
    prompt_depth += uint64_t{rows} * first + uint64_t{rows} * (rows - 1) / 2;
  }
};

// Learns from passes what they take, and says how many rows of a prompt fit into the time a pass may take.
//
// The time of a pass is a sum of terms, each a weight times what there is of it: one for every pass, with or without
// prompts, and one for each row and each position attended to, of prompts and of decode rows. After every pass the
// weights are multiplied so that the sum comes nearer to what was measured, each by as much as it contributes. So all
// stay positive, what a pass hardly depends on is hardly changed by it, and the estimate is best where it is used: near
// the passes that are being run.
//
// Other work of the machine makes passes longer, never shorter. So a pass that was faster than estimated is believed at
// once, and a slower one only as far as the one before it was slower too: a single delay changes nothing.
class PassCost {
 public:
  // Seconds; 0 before anything was recorded.
  double seconds(const PassLoad& load) const;

  // `was_waited_for`: false where the pass may have ended before anybody looked, so that its time is an upper bound.
  void record(const PassLoad& load, double seconds, bool was_waited_for = true);

  // The most rows, at most `most`, of a prompt at position `first` that can join a pass so that it takes no longer than
  // `target` seconds. Where the pass takes long without them already, they may take a fifth of its time all the same,
  // and one row always fits: whoever waits for a prompt is not left waiting for ever.
  uint32_t prompt_rows(const PassLoad& load, uint32_t first, uint32_t most, double target) const;

 private:
  enum Term { kDecodePass, kPromptPass, kDecodeRow, kDecodeDepth, kPromptRow, kPromptDepth, kTerms };
  using Terms = std::array<double, kTerms>;
  static Terms amounts(const PassLoad& load);
  void begin(const Terms& amount, double seconds);

  Terms weight_{};           // seconds; 0: nothing was recorded yet that has any of it
  double last_ratio_ = 1.0;  // of the time of the last pass to its estimate
};

}  // namespace carat::engine
