#include "text/grammar/compiled_grammar.h"

#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"

namespace carat::text::grammar {

CompiledGrammar::CompiledGrammar(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie)
    : automaton_(std::make_shared<const Automaton>(grammar)), trie_(std::move(trie)), notes_(grammar.notes()) {
  const ByteSet missing = automaton_->used_bytes() & ~trie_->single_bytes();
  for (size_t byte = 0; byte < missing.size(); ++byte) {
    if (!missing[byte]) continue;
    for (const auto& [mark, text] : kMarkBytes) {
      if (byte != static_cast<uint8_t>(mark)) continue;
      fail(ErrorCode::kUnsupported,
           "the grammar needs {}, which the vocabulary lacks: this model was not made for calling tools", text);
    }
    fail(ErrorCode::kUnsupported,
         "the grammar needs the byte 0x{0:02X}, but no token of the vocabulary spells it by itself (<0x{0:02X}> is "
         "missing or suppressed): leave it out of the grammar, or convert the model again",
         byte);
  }
}

std::shared_ptr<const LocalMask> CompiledGrammar::local_mask(NodeId node, StateTable& table) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = local_masks_.find(node);
    if (found != local_masks_.end()) return found->second;
  }
  // Without the lock: two threads may compute the same mask, but nobody waits for somebody else's.
  auto mask = std::make_shared<const LocalMask>(compute_local_mask(*trie_, table, node));
  const std::lock_guard lock(mutex_);
  if (local_mask_bytes_ + mask->bytes() <= kLocalMaskCacheBytes && local_masks_.try_emplace(node, mask).second) {
    local_mask_bytes_ += mask->bytes();
  }
  return mask;
}

std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar, std::shared_ptr<const Vocab> vocab) {
  return compile(grammar, std::make_shared<const TokenTrie>(std::move(vocab)));
}

std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie) {
  return std::make_shared<const CompiledGrammar>(grammar, std::move(trie));
}

}  // namespace carat::text::grammar
