#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_turn.h"
#include "text/grammar/token_mask.h"

namespace carat::test {

using Tokens = std::vector<text::TokenId>;

// The tokens of a text of the demo vocabulary, marks included.
Tokens demo_tokens(std::string_view text);
text::TokenId demo_token(std::string_view text);  // that has exactly this text

// What the model of a walk does wherever it may: this token, with this probability.
struct Liking {
  std::string token;
  double probability;
};

// A moment of a walk: what may come next.
struct Moment {
  const engine::ChatTurn& turn;
  std::span<const text::TokenId> tokens;  // so far
  bool is_forced;
  const text::grammar::TokenMask& allowed;  // one token where it is forced
};

struct WalkPlan {
  std::string prompt = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n";
  std::vector<Liking> likings = {};
  size_t free_tokens = 12;  // then the model closes what is open and stops, where it can
  size_t max_tokens = 300;
  uint64_t seed = 1;
  std::function<void(const Moment&)> watch = [](const Moment&) {};
};

struct Walk {
  Tokens tokens;  // of the output, with the stop that ended it
  bool has_stopped = false;
  engine::TurnResult result;
  std::string events;  // "t" thought, "a" answer, "c" call, "b" bad call, in their order, repetitions left out

  size_t count(text::TokenId token) const;
};

// A turn whose model is chance, under the turn's own guide: each token is one of those that are allowed. Checks that
// there always is one.
Walk walk(const engine::TurnOptions& options, const WalkPlan& plan);

}  // namespace carat::test
