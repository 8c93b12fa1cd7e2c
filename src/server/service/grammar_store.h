#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "server/service/recent_cache.h"
#include "text/chat/conversation.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/vocab.h"
#include "text/tools/callable_tool.h"

namespace carat::server {

// Compiled grammars and tools, kept between requests: clients send the same schemas and tools again and again.
// Thread-safe; two requests that want the same new grammar may both compile it.
class GrammarStore {
 public:
  static constexpr size_t kMostEntries = 512;
  static constexpr size_t kMostBytes = size_t{32} << 20;  // of sources

  explicit GrammarStore(std::shared_ptr<const text::Vocab> vocab);

  // `kind` tells apart grammars that are made of the same source in different ways. What `make` throws is thrown here
  // and not remembered.
  std::shared_ptr<const text::grammar::CompiledGrammar> grammar(
      std::string_view kind, std::string_view source,
      const std::function<text::grammar::Grammar(std::string_view source)>& make);
  std::shared_ptr<const text::CallableTool> tool(const text::Tool& tool);

 private:
  // What all grammars share; made when it is needed first.
  std::shared_ptr<const text::grammar::TokenTrie> trie();

  std::shared_ptr<const text::Vocab> vocab_;
  std::mutex trie_mutex_;
  std::shared_ptr<const text::grammar::TokenTrie> trie_;
  RecentCache<text::grammar::CompiledGrammar> grammars_{kMostEntries, kMostBytes};
  RecentCache<text::CallableTool> tools_{kMostEntries, kMostBytes};
};

}  // namespace carat::server
