#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/vocab.h"

namespace carat::cli {

// Splits the tokens of an answer into what the model thought (between the channel tokens) and what it says, and hands
// both out as text as soon as it is certain. Thinking never leaks into the answer.
class AnswerStream {
 public:
  using Sink = std::function<void(std::string_view)>;

  // An empty `thought` sink: raw output, where channel tokens are text like any other.
  AnswerStream(std::shared_ptr<const text::Vocab> vocab, Sink answer, Sink thought);

  void append(text::TokenId token);
  void finish();

  const std::string& answer() const { return answer_text_; }
  bool in_thought() const { return in_thought_; }

 private:
  void emit(std::string_view text);
  void emit_thought(std::string_view text);

  text::Detokenizer detokenizer_;
  Sink answer_;
  Sink thought_;
  std::optional<text::TokenId> open_;
  std::optional<text::TokenId> close_;
  bool in_thought_ = false;
  bool in_channel_name_ = false;  // the word "thought" and a newline stand between the opening token and the text
  std::string answer_text_;
};

}  // namespace carat::cli
