#pragma once

#include <cstdint>
#include <string_view>

namespace carat::engine {

enum class DraftMode {
  kOff,
  kAuto,  // drafts while they pay, as measured (draft_governor.h)
  kOn,    // drafts whenever there is something to draft from
};

// "auto", "on" or "off"; throws kBadArgument listing them otherwise.
DraftMode parse_draft_mode(std::string_view name);

// Drafts from n-grams (prompt lookup, `--lookup`): where the latest tokens have occurred before, what followed them
// there is likely to follow again. A draft of it is checked in one pass with the next token, which costs little more
// than that token alone where a pass is bound by reading the weights.
//
// What is generated does not change, because a draft never chooses anything: the sampler makes every choice from the
// logits of its own position, with the penalties, the guide and the random number of that position (counter_random.h:
// draw n of a seed is a pure function of both), and the draft only says for which positions the logits are there
// already. They are valid as long as the choices before them were the drafted tokens; the first other choice ends the
// round, and the rows after it are taken back. So the tokens are those of one pass a token, the text of a seed
// included, as far as the executor's logits do not depend on the number of rows (Executor::rows_are_independent).
struct DraftOptions {
  static constexpr uint32_t kShortestNgram = 2;  // a single token recurs too often to say what follows
  static constexpr uint32_t kLongestNgram = 16;
  static constexpr uint32_t kLongestDraft = 63;

  DraftMode mode = DraftMode::kOff;
  uint32_t max_ngram = 4;  // most tokens that are looked for
  uint32_t max_draft = 7;  // most tokens drafted for one pass: with the next token, the eight rows of a narrow pass

  // Throws kBadArgument naming the flag that is out of its range.
  void check() const;
};

}  // namespace carat::engine
