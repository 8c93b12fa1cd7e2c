#include "text/tokenizer/detokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace carat::text {

namespace {

constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";

}  // namespace

void append_spelling(const Vocab& vocab, TokenId id, std::string& out) {
  if (const auto byte = vocab.byte_value(id)) {
    out += static_cast<char>(*byte);
    return;
  }
  std::string_view text = vocab.text(id);
  for (;;) {
    const size_t space = text.find(kSpaceSymbol);
    out += text.substr(0, space);
    if (space == std::string_view::npos) return;
    out += ' ';
    text.remove_prefix(space + kSpaceSymbol.size());
  }
}

Detokenizer::Detokenizer(std::shared_ptr<const Vocab> vocab, bool show_control)
    : vocab_(std::move(vocab)), show_control_(show_control) {}

std::string Detokenizer::append(TokenId token) {
  if (!vocab_->contains(token)) {
    fail(ErrorCode::kBadArgument, "token {} does not exist: the vocabulary has {} tokens", token, vocab_->size());
  }
  const TokenType type = vocab_->type(token);
  const bool is_silent = type == TokenType::kControl || type == TokenType::kUnknown;
  if (show_control_ || !is_silent) append_spelling(*vocab_, token, pending_);
  const size_t certain = pending_.size() - utf8_incomplete_suffix(pending_);
  std::string text = utf8_sanitise(std::string_view(pending_).substr(0, certain));
  pending_.erase(0, certain);
  return text;
}

std::string Detokenizer::flush() {
  std::string text = utf8_sanitise(pending_);
  pending_.clear();
  return text;
}

std::string decode(const std::shared_ptr<const Vocab>& vocab, std::span<const TokenId> tokens, bool show_control) {
  Detokenizer detokenizer(vocab, show_control);
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.append(token);
  return text + detokenizer.flush();
}

}  // namespace carat::text
