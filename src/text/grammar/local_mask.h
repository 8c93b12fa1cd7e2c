#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/grammar/state_table.h"
#include "text/grammar/token_mask.h"
#include "text/grammar/token_trie.h"

namespace carat::text::grammar {

// What can be said of a position in a rule whatever called the rule: the tokens that stay inside of it or end it
// exactly, and those places in the trie where the rule is complete and more bytes follow. Only these depend on the
// caller.
struct LocalMask {
  std::optional<TokenMask> many;  // one of these two holds the tokens
  std::vector<TokenId> few;
  std::vector<uint32_t> exits;  // nodes of the trie

  void add_to(TokenMask& mask) const;
  size_t bytes() const;
};

LocalMask compute_local_mask(const TokenTrie& trie, StateTable& table, NodeId node);

// Adds the tokens below the nodes `tops` of the trie whose bytes from there on can be read from `state`.
void add_matching_tokens(const TokenTrie& trie, StateTable& table, std::span<const uint32_t> tops, StateId state,
                         TokenMask& mask);

}  // namespace carat::text::grammar
