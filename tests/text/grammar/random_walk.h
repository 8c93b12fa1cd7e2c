#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.h"
#include "text/grammar/matcher.h"

namespace carat::text::grammar::test {

// How near each token brings an output to its end, as far as one can tell: it closes strings and brackets and is no
// letter or opening bracket. Computed once for a vocabulary.
inline const std::vector<uint8_t>& end_ranks(const TokenTrie& trie) {
  static std::map<const TokenTrie*, std::vector<uint8_t>> known;
  std::vector<uint8_t>& ranks = known[&trie];
  for (size_t i = ranks.size(); i < trie.vocab().size(); ++i) {
    const std::string_view bytes = trie.bytes(static_cast<TokenId>(i));
    uint8_t rank = 1;
    if (!bytes.empty() && (bytes.back() == '"' || bytes.back() == '}' || bytes.back() == ']')) rank = 2;
    if (bytes.find_first_of("[{,") != std::string_view::npos) rank = 0;
    if (bytes == "\xff" || bytes == "\xfd") rank = 3;  // marks of a call: end of a string, of the call
    if (bytes.empty()) rank = 4;                       // a stop
    ranks.push_back(rank);
  }
  return ranks;
}

// A random token of `mask`. In `hurry` one that brings the output nearer to its end.
inline TokenId random_token(carat::test::Random& random, const TokenTrie& trie, const TokenMask& mask, bool hurry) {
  const std::vector<uint8_t>& ranks = end_ranks(trie);
  uint64_t best_rank = 0, seen = 0;
  TokenId best = -1;
  mask.for_each([&](TokenId token) {
    const uint64_t rank = hurry ? ranks[static_cast<size_t>(token)] : 1;
    if (best >= 0 && rank < best_rank) return;
    if (best < 0 || rank > best_rank) seen = 0;
    best_rank = rank;
    if (random.below(++seen) == 0) best = token;
  });
  return best;
}

// A whole output: `lead`, random tokens for a while, then in a hurry. nullopt when `limit` tokens were not enough.
inline std::optional<std::string> random_output(carat::test::Random& random,
                                                const std::shared_ptr<const CompiledGrammar>& grammar,
                                                std::span<const TokenId> lead, size_t free, size_t limit) {
  GrammarMatcher matcher(grammar);
  std::string text;
  for (size_t i = 0; i < limit; ++i) {
    // Once in a while also before it is in a hurry, so that there are short outputs of everything.
    const bool hurry = i >= lead.size() + free || random.below(4) == 0;
    const TokenId token = i < lead.size() ? lead[i] : random_token(random, grammar->trie(), matcher.allowed(), hurry);
    matcher.accept(token);
    if (matcher.finished()) return text;
    text += grammar->trie().bytes(token);
  }
  return std::nullopt;
}

// `count` outputs, or fewer when too many of them do not come to an end by chance. Most of them begin like
// one of `examples`, which lead to places that no random walk would find.
inline std::vector<std::string> random_outputs(carat::test::Random& random,
                                               const std::shared_ptr<const CompiledGrammar>& grammar,
                                               std::span<const std::vector<TokenId>> examples, size_t count) {
  constexpr size_t kFree = 15;
  const size_t limit = examples.empty() ? 600 : 100;
  std::vector<std::string> outputs;
  for (size_t tries = 0; tries < 10 * count && outputs.size() < count; ++tries) {
    std::span<const TokenId> lead;
    if (!examples.empty() && tries % 4 != 0) {
      lead = examples[random.below(examples.size())];
      lead = lead.first(random.below(lead.size() + 1));
    }
    if (auto output = random_output(random, grammar, lead, kFree, lead.size() + limit))
      outputs.push_back(std::move(*output));
  }
  return outputs;
}

}  // namespace carat::text::grammar::test
