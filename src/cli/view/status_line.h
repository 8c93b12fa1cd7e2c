#pragma once

#include <cstdint>
#include <string>

namespace carat::cli {

// What a turn cost and how it ended.
struct TurnStatus {
  uint32_t prompt_reused = 0;
  uint32_t prompt_new = 0;
  double prompt_tps = 0;  // tokens per second; 0 where it is not known
  uint32_t generated = 0;
  double decode_tps = 0;
  uint32_t drafted = 0;  // 0: nothing is said of it
  uint32_t accepted = 0;
  double tokens_per_pass = 0;
  uint32_t context_used = 0;
  uint32_t context_size = 0;
  std::string ending;      // in words, where the turn did not just stop
  std::string cache_note;  // why less was reused than one would think
};

// One line that fits into `columns`, such as
//   prompt 412 reused + 31 new, 1,204 t/s · 86 tokens, 412 t/s · context 529/4,096 (13%)
// and after the speed, where drafts were made, "lookup 3.1 tokens/pass, 71% accepted",
// with shorter words, and then less said, where there is less room. The ending and the note follow on lines of their
// own. Without a newline at the end.
std::string status_line(const TurnStatus& status, unsigned columns);

// A bar of exactly `columns` - 1 columns (the last one stays free, so that no terminal wraps) with percent, tokens,
// speed and the time left, as far as there is room for them.
std::string prefill_progress(uint32_t done, uint32_t total, double tps, unsigned columns);

}  // namespace carat::cli
