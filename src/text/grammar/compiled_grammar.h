#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/local_mask.h"
#include "text/grammar/token_trie.h"
#include "text/tokenizer/vocab.h"

namespace carat::text::grammar {

// A grammar made ready for one vocabulary; any number of outputs on any threads may follow it at the same time. It
// never changes but for the masks it remembers.
class CompiledGrammar {
 public:
  // Throws kUnsupported when the grammar has a use for a byte that no token spells by itself: a text could then come to
  // a point from which no token leads on.
  CompiledGrammar(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie);

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }
  // What is narrower than what the grammar was made of (Grammar::notes).
  const std::vector<std::string>& notes() const { return notes_; }

  // Computed by `table`, a table of this grammar's automaton, when it is not remembered.
  std::shared_ptr<const LocalMask> local_mask(NodeId node, StateTable& table) const;

 private:
  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::string> notes_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<NodeId, std::shared_ptr<const LocalMask>> local_masks_;
  mutable size_t local_mask_bytes_ = 0;
};

std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar, std::shared_ptr<const Vocab> vocab);
// Spares building the trie again, which for a large vocabulary takes longer than everything else.
std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie);

}  // namespace carat::text::grammar
