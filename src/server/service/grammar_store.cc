#include "server/service/grammar_store.h"

#include <string>
#include <utility>

namespace carat::server {

GrammarStore::GrammarStore(std::shared_ptr<const text::Vocab> vocab) : vocab_(std::move(vocab)) {}

std::shared_ptr<const text::grammar::TokenTrie> GrammarStore::trie() {
  const std::lock_guard lock(trie_mutex_);
  if (!trie_) trie_ = std::make_shared<const text::grammar::TokenTrie>(vocab_);
  return trie_;
}

std::shared_ptr<const text::grammar::CompiledGrammar> GrammarStore::grammar(
    std::string_view kind, std::string_view source,
    const std::function<text::grammar::Grammar(std::string_view source)>& make) {
  std::string key(kind);
  key += '\n';
  key += source;
  if (auto known = grammars_.find(key)) return known;
  auto compiled = text::grammar::compile(make(source), trie());
  grammars_.put(std::move(key), compiled);
  return compiled;
}

std::shared_ptr<const text::CallableTool> GrammarStore::tool(const text::Tool& tool) {
  std::string key = tool.name + '\n' + tool.json;
  if (auto known = tools_.find(key)) return known;
  auto made = std::make_shared<const text::CallableTool>(text::callable_tool(tool, trie()));
  tools_.put(std::move(key), made);
  return made;
}

}  // namespace carat::server
