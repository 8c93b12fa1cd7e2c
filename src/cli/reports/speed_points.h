#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carat::cli {

// The speed of generation at one depth, as a benchmark measured it.
struct SpeedPoint {
  std::string engine;
  std::string model;
  uint32_t depth = 0;      // tokens already in the cache
  double speed = 0.0;      // tokens per second
  double deviation = 0.0;  // of the speed; 0 where it is not known
};

// The measurements of pure generation (tg) in what `carat bench -o json|jsonl|csv` or llama-bench wrote, or in a file
// of the same fields by hand: model_type, n_gen and avg_ts, and where they are not 0 n_prompt, n_depth and stddev_ts.
// Other tests, several sequences at once and runs with drafts are left out. `file` is for messages, `engine` for the
// points, and so is `model` unless it is empty: then model_type is taken. Throws kBadFile, also when nothing is left.
std::vector<SpeedPoint> read_speed_points(std::string_view text, std::string_view file, std::string_view engine,
                                          std::string_view model = {});

}  // namespace carat::cli
