#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "text/tokenizer/vocab.h"

namespace carat::text {

// The marks in a model's output that are tokens of their own.
enum class Mark {
  kThoughtOpen,
  kThoughtClose,
  kCallOpen,
  kCallClose,
  kResponseOpen,
  kResponseClose,
  kQuote,  // on both sides of a string in a call
  kTurnOpen,
  kTurnClose,
};
constexpr std::array<std::pair<Mark, std::string_view>, 9> kMarkTexts = {{{Mark::kThoughtOpen, "<|channel>"},
                                                                          {Mark::kThoughtClose, "<channel|>"},
                                                                          {Mark::kCallOpen, "<|tool_call>"},
                                                                          {Mark::kCallClose, "<tool_call|>"},
                                                                          {Mark::kResponseOpen, "<|tool_response>"},
                                                                          {Mark::kResponseClose, "<tool_response|>"},
                                                                          {Mark::kQuote, "<|\"|>"},
                                                                          {Mark::kTurnOpen, "<|turn>"},
                                                                          {Mark::kTurnClose, "<turn|>"}}};

// Which tokens of a vocabulary they are.
class MarkTokens {
 public:
  explicit MarkTokens(const Vocab& vocab) {
    for (size_t i = 0; i < kMarkTexts.size(); ++i) tokens_[i] = vocab.find(kMarkTexts[i].second).value_or(-1);
  }

  TokenId operator[](Mark mark) const { return tokens_[static_cast<size_t>(mark)]; }  // -1: there is none
  std::optional<Mark> mark_of(TokenId token) const {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] == token && token >= 0) return kMarkTexts[i].first;
    }
    return std::nullopt;
  }

 private:
  std::array<TokenId, kMarkTexts.size()> tokens_;  // by Mark, as kMarkTexts is
};

}  // namespace carat::text
