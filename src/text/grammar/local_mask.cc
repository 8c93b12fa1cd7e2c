#include "text/grammar/local_mask.h"

#include <utility>

namespace carat::text::grammar {

namespace {

// Walks over the subtrees below `tops` as far as the automaton can read, and calls visit(trie node, state) on the way.
template <typename Visit>
void walk(const TokenTrie& trie, StateTable& table, std::span<const uint32_t> tops, StateId state, Visit&& visit) {
  const auto nodes = trie.nodes();
  std::vector<StateId> path(trie.longest_token() + 1);  // the state after each byte of the current text
  for (const uint32_t top : tops) {
    path[nodes[top].depth] = state;
    for (uint32_t i = top + 1; i < nodes[top].end;) {
      const TokenTrie::Node& node = nodes[i];
      table.count_work(1);
      const StateId next = table.step(path[node.depth - 1u], node.byte);
      if (next == StateTable::kDead) {
        i = node.end;
        continue;
      }
      path[node.depth] = next;
      visit(i, next);
      ++i;
    }
  }
}

}  // namespace

void LocalMask::add_to(TokenMask& mask) const {
  if (many) mask.add(*many);
  for (const TokenId token : few) mask.set(token);
}

size_t LocalMask::bytes() const {
  return sizeof(LocalMask) + (many ? many->words().size_bytes() : 0) + few.capacity() * sizeof(TokenId) +
         exits.capacity() * sizeof(uint32_t);
}

LocalMask compute_local_mask(const TokenTrie& trie, StateTable& table, NodeId node) {
  LocalMask local;
  static constexpr uint32_t kRoot = 0;
  walk(trie, table, {&kRoot, 1}, table.inside(node), [&](uint32_t i, StateId state) {
    const auto tokens = trie.tokens(i);
    local.few.insert(local.few.end(), tokens.begin(), tokens.end());
    if (table.at_bottom(state) && trie.nodes()[i].end > i + 1) local.exits.push_back(i);
  });
  if (local.few.size() > trie.vocab().size() / 32) {  // from here on a bit for each token takes less room
    local.many.emplace(trie.vocab().size());
    for (const TokenId token : local.few) local.many->set(token);
    local.few = {};
  }
  local.few.shrink_to_fit();
  local.exits.shrink_to_fit();
  return local;
}

void add_matching_tokens(const TokenTrie& trie, StateTable& table, std::span<const uint32_t> tops, StateId state,
                         TokenMask& mask) {
  walk(trie, table, tops, state, [&](uint32_t i, StateId) {
    for (const TokenId token : trie.tokens(i)) mask.set(token);
  });
}

}  // namespace carat::text::grammar
