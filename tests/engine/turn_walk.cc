#include "engine/turn_walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"
#include "text/chat/marks.h"
#include "text/demo_vocab.h"
#include "text/grammar/token_trie.h"

namespace carat::test {

using text::TokenId;
using text::grammar::TokenMask;

namespace {

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer demo(text::test::demo_vocab());
  return demo;
}

const text::grammar::TokenTrie& trie() {
  static const text::grammar::TokenTrie demo(text::test::demo_vocab());
  return demo;
}

TokenMask mask_of(std::span<const uint64_t> words) {
  const size_t size = text::test::demo_vocab()->size();
  TokenMask mask(size);
  EXPECT_TRUE(words.empty() || words.size() == (size + 63) / 64);
  for (size_t id = 0; id < size; ++id) {
    if (words.empty() || (words[id / 64] >> id % 64 & 1) != 0) mask.set(static_cast<TokenId>(id));
  }
  if (!words.empty() && size % 64 != 0) {
    EXPECT_EQ(words.back() >> size % 64, 0u) << "tokens that do not exist";
  }
  return mask;
}

// How much a token is wanted by a model that is in a hurry to be done.
int rank(TokenId token) {
  static const text::MarkTokens marks(*text::test::demo_vocab());
  if (text::test::demo_vocab()->is_stop(token)) return 5;
  const auto mark = marks.mark_of(token);
  if (mark == text::Mark::kThoughtClose || mark == text::Mark::kCallClose) return 4;
  if (mark == text::Mark::kQuote) return 3;
  if (mark) return 0;
  const std::string_view bytes = trie().bytes(token);
  if (bytes.empty() || bytes.find_first_of("[{,") != std::string_view::npos) return 0;
  return bytes.back() == '"' || bytes.back() == '}' || bytes.back() == ']' ? 2 : 1;
}

TokenId choose(const TokenMask& allowed, const WalkPlan& plan, bool hurry, Random& random) {
  for (const Liking& liking : plan.likings) {
    const TokenId token = demo_token(liking.token);
    if (allowed.allows(token) && random.uniform() < liking.probability) return token;
  }
  TokenId best = -1;
  int best_rank = -1;
  uint64_t seen = 0;
  allowed.for_each([&](TokenId token) {
    const int wanted = hurry ? rank(token) : 0;
    if (wanted < best_rank) return;
    if (wanted > best_rank) seen = 0;
    best_rank = wanted;
    if (random.below(++seen) == 0) best = token;
  });
  return best;
}

char letter(text::OutputEvent::Kind kind) { return "tacb"[static_cast<size_t>(kind)]; }

}  // namespace

Tokens demo_tokens(std::string_view text) { return tokenizer().encode(text, text::Tokenizer::Specials::kParse); }

TokenId demo_token(std::string_view text) {
  const auto token = text::test::demo_vocab()->find(text);
  EXPECT_TRUE(token) << text;
  return token.value_or(-1);
}

size_t Walk::count(TokenId token) const { return static_cast<size_t>(std::count(tokens.begin(), tokens.end(), token)); }

Walk walk(const engine::TurnOptions& options, const WalkPlan& plan) {
  const auto vocab = text::test::demo_vocab();
  Walk result;
  engine::TurnOptions wanted = options;
  wanted.loop_guard = false;
  engine::ChatTurn turn(tokenizer(), vocab, demo_tokens(plan.prompt), wanted, [&](const text::OutputEvent& event) {
    if (result.events.empty() || result.events.back() != letter(event.kind)) result.events += letter(event.kind);
  });
  const engine::Request request = turn.take_request();
  const auto& own = request.stop_tokens;
  Random random(plan.seed);
  engine::Ending ending = engine::Ending::kLength;
  TokenId token = -1;
  while (ending == engine::Ending::kLength && result.tokens.size() < plan.max_tokens) {
    const auto forced = request.guide ? request.guide->forced() : std::nullopt;
    TokenMask allowed(vocab->size());
    if (forced) {
      allowed.set(*forced);
    } else {
      allowed = mask_of(request.guide ? request.guide->allowed() : std::span<const uint64_t>());
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed after " << result.tokens.size() << " tokens";
      break;
    }
    plan.watch({turn, result.tokens, forced.has_value(), allowed});
    token = choose(allowed, plan, result.tokens.size() >= plan.free_tokens, random);
    if (request.guide) request.guide->accept(token);
    result.tokens.push_back(token);
    const bool is_own = std::find(own.begin(), own.end(), token) != own.end();
    if (is_own || (vocab->is_stop(token) && !options.ignore_stops)) {
      ending = engine::Ending::kStopToken;
    } else if (!turn.append(token)) {
      ending = engine::Ending::kCancelled;
    }
  }
  result.has_stopped = ending == engine::Ending::kStopToken;
  result.result = turn.finish(ending, result.has_stopped ? token : -1);
  return result;
}

}  // namespace carat::test
