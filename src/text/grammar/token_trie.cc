#include "text/grammar/token_trie.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/detokenizer.h"

namespace carat::text::grammar {

TokenTrie::TokenTrie(std::shared_ptr<const Vocab> vocab) : vocab_(std::move(vocab)) {
  collect_texts();
  build_nodes();
}

std::vector<bool> TokenTrie::plain_tokens() const {
  std::vector<bool> is_text(vocab_->size());
  for (size_t i = 0; i < vocab_->size(); ++i) {
    const TokenType type = vocab_->type(static_cast<TokenId>(i));
    is_text[i] = type == TokenType::kNormal || type == TokenType::kByte;
  }
  for (const auto& [byte, text] : kMarkBytes) {
    const TokenId same_byte = vocab_->byte_token(static_cast<uint8_t>(byte));
    if (same_byte >= 0) is_text[static_cast<size_t>(same_byte)] = false;
    if (const auto mark = vocab_->find(text)) is_text[static_cast<size_t>(*mark)] = true;
  }
  for (const TokenId id : vocab_->suppressed()) is_text[static_cast<size_t>(id)] = false;
  for (const TokenId id : vocab_->stops()) is_text[static_cast<size_t>(id)] = false;
  return is_text;
}

void TokenTrie::collect_texts() {
  const std::vector<bool> is_text = plain_tokens();
  const auto append_text = [&](TokenId id) {
    for (const auto& [byte, text] : kMarkBytes) {
      if (vocab_->text(id) != text) continue;
      texts_ += byte;
      return;
    }
    append_spelling(*vocab_, id, texts_);
  };
  ends_.reserve(vocab_->size());
  for (size_t i = 0; i < vocab_->size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (is_text[i]) append_text(id);
    ends_.push_back(static_cast<uint32_t>(texts_.size()));
    const std::string_view spelling = bytes(id);
    if (spelling.find('"') != std::string_view::npos) quoted_.push_back(id);
    if (spelling.find(kStringDelimiter) != std::string_view::npos) delimited_.push_back(id);
    longest_ = std::max(longest_, static_cast<uint32_t>(spelling.size()));
    if (spelling.size() == 1) single_bytes_.set(static_cast<uint8_t>(spelling[0]));
  }
}

void TokenTrie::build_nodes() {
  for (size_t i = 0; i < vocab_->size(); ++i) {
    if (!bytes(static_cast<TokenId>(i)).empty()) tokens_.push_back(static_cast<TokenId>(i));
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });

  std::vector<uint32_t> path = {0};  // the nodes from the root to the latest text
  nodes_.push_back({0, 0, 0, 0});
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  std::string_view before;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = bytes(tokens_[i]);
    const auto parts = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
    const auto common = static_cast<size_t>(parts.second - text.begin());
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(i), static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(text[depth])});
    }
    before = text;
  }
  close(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

}  // namespace carat::text::grammar
