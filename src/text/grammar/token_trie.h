#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/tokenizer/vocab.h"
#include "text/tools/tool_call_parser.h"

namespace carat::text::grammar {

// The marks of tool calls are tokens, not text. For a grammar each is spelled as a byte that no UTF-8 contains, so that
// only a grammar that asks for this very byte lets the token through.
inline constexpr std::array<std::pair<char, std::string_view>, 3> kMarkBytes = {
    {{'\xfd', "<tool_call|>"}, {'\xfe', "<|tool_call>"}, {kStringDelimiter, "<|\"|>"}}};
inline constexpr char kCallClose = kMarkBytes[0].first;
inline constexpr char kCallOpen = kMarkBytes[1].first;

// The tokens of a vocabulary that spell ordinary text, as a tree of their bytes: normal ones, with U+2581 as space, and
// byte tokens; and the marks above. Other control and user-defined tokens, unused, unknown, suppressed ones and stops
// are no text. Immutable; one serves all grammars of a model.
class TokenTrie {
 public:
  explicit TokenTrie(std::shared_ptr<const Vocab> vocab);

  // In the order of a depth-first walk, so that a subtree is the stretch [i, nodes[i].end).
  struct Node {
    uint32_t end;
    uint32_t first_token;  // of tokens(); those of a node end where the next node's begin
    uint16_t depth;        // bytes up to here
    uint8_t byte;
  };
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }  // the first: the empty text
  std::span<const TokenId> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }

  const Vocab& vocab() const { return *vocab_; }
  // What the token spells; empty for those that are no text.
  std::string_view bytes(TokenId id) const {
    const size_t begin = id == 0 ? 0 : ends_[static_cast<size_t>(id) - 1];
    return std::string_view(texts_).substr(begin, ends_[static_cast<size_t>(id)] - begin);
  }
  // Those that spell this byte somewhere: the quotes of strings.
  std::span<const TokenId> tokens_with(uint8_t quote) const { return quote == '"' ? quoted_ : delimited_; }
  uint32_t longest_token() const { return longest_; }            // in bytes
  const ByteSet& single_bytes() const { return single_bytes_; }  // bytes that are a token by themselves

 private:
  std::vector<bool> plain_tokens() const;
  void collect_texts();
  void build_nodes();

  std::shared_ptr<const Vocab> vocab_;
  std::string texts_;
  std::vector<uint32_t> ends_;
  std::vector<Node> nodes_;  // and one more that ends the last one's tokens
  std::vector<TokenId> tokens_;
  std::vector<TokenId> quoted_, delimited_;
  ByteSet single_bytes_;
  uint32_t longest_ = 0;
};

}  // namespace carat::text::grammar
