#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/cache/prefix_cache.h"
#include "engine/failure.h"
#include "engine/pass_figures.h"
#include "engine/sequence.h"

namespace carat::engine {

enum class RunnerState { kRunning, kDraining, kStopped, kLost };

// What the rows of a pass are.
enum class PassMix { kDecode, kPrompt, kMixed };
inline constexpr size_t kPassMixes = 3;

// Passes of one mix, counted by what they took and by their rows.
struct PassCounts {
  // Upper bounds of the classes; one more class holds all that is beyond.
  static constexpr std::array<double, 16> kSecondsBounds = {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015,
                                                            0.02,   0.025, 0.05,  0.075, 0.1,   0.25,   0.5,  1.0};
  static constexpr std::array<double, 14> kRowsBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

  uint64_t passes = 0;
  double seconds = 0.0;
  uint64_t rows = 0;
  std::array<uint64_t, kSecondsBounds.size() + 1> by_seconds{};
  std::array<uint64_t, kRowsBounds.size() + 1> by_rows{};

  void add(double seconds_taken, uint64_t rows_run);
};

// Everything since a runner was made.
struct RunnerTotals {
  uint64_t submitted = 0;
  std::array<uint64_t, kEndings> ended{};  // by Ending
  uint64_t prompt_tokens_run = 0;
  uint64_t prompt_tokens_reused = 0;  // of requests that have ended
  uint64_t generated_tokens = 0;      // that were chosen, stop tokens included
  uint64_t drafted_tokens = 0;        // of requests that have ended, as the next one
  uint64_t accepted_tokens = 0;
  double mask_seconds = 0.0;                  // of passes: what guides took to say which tokens are allowed
  std::array<PassCounts, kPassMixes> passes;  // by PassMix

  void add_pass(const PassFigures& pass);
  void add_end(Ending ending, const SequenceFigures& figures);
};

// A runner at the end of a pass.
struct RunnerSnapshot {
  double seconds = 0.0;  // by the engine's clock
  RunnerState state = RunnerState::kRunning;
  std::optional<Failure> lost;
  uint32_t running = 0;
  uint32_t waiting = 0;
  // Tokens whose keys and values are held, those of requests that have ended included, and how many there is room for.
  uint64_t cached_tokens = 0;
  uint64_t cache_capacity = 0;
  // As of EngineFigures; no pages where caches are of one sequence each.
  model::PageCount pages, held_pages, free_pages;
  uint64_t global_page_bytes = 0, sliding_page_bytes = 0;
  PrefixCacheFigures prefixes;
  uint64_t preempted = 0;
  double last_pass_seconds = 0.0;
  // Of the last seconds, the latest counting most; 0 while nothing is run.
  double prompt_tokens_per_second = 0.0;
  double generated_tokens_per_second = 0.0;
  RunnerTotals totals;
};

// Events per second, where an event counts less the longer ago it was.
class RecentRate {
 public:
  void add(double now, double events);
  double at(double now) const;

 private:
  double rate_ = 0.0;
  double updated_ = 0.0;
};

}  // namespace carat::engine
