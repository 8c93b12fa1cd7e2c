#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace carat::text {

// Notices that a model repeats itself: the last tokens are some copies of one stretch of tokens. One pass over the
// longest allowed period for each token, and memory for twice that many numbers, however long the output.
class LoopDetector {
 public:
  struct Options {
    uint32_t longest_period = 512;
    // How much must repeat: this many copies after the first, and at least this many tokens. Tables, lists and ASCII
    // art repeat a little; nothing people ask for repeats hundreds of tokens exactly.
    uint32_t copies = 3;
    uint32_t tokens = 128;
  };
  struct Loop {
    uint32_t period;  // tokens of what is repeated
    uint64_t copies;  // of it in a row, the first included
  };

  LoopDetector() : LoopDetector(Options{}) {}
  explicit LoopDetector(const Options& options);

  // The loop that the output is in with this token, the one of the shortest period; nothing otherwise.
  std::optional<Loop> append(TokenId token);

 private:
  Options options_;
  std::vector<TokenId> recent_;    // the last longest_period tokens, as a ring
  std::vector<uint64_t> matches_;  // [p - 1]: how many tokens in a row equalled the one p before them
  uint64_t count_ = 0;
};

}  // namespace carat::text
