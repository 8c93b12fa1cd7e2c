#include "cli/answer_stream.h"

#include <utility>

namespace carat::cli {

AnswerStream::AnswerStream(std::shared_ptr<const text::Vocab> vocab, Sink answer, Sink thought)
    : detokenizer_(vocab), answer_(std::move(answer)), thought_(std::move(thought)) {
  if (thought_) {
    open_ = vocab->find("<|channel>");
    close_ = vocab->find("<channel|>");
  }
}

void AnswerStream::emit_thought(std::string_view text) {
  if (in_channel_name_) {
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) return;
    in_channel_name_ = false;
    text.remove_prefix(newline + 1);
  }
  if (!text.empty()) thought_(text);
}

void AnswerStream::emit(std::string_view text) {
  if (text.empty()) return;
  if (in_thought_) {
    emit_thought(text);
  } else {
    answer_text_ += text;
    answer_(text);
  }
}

void AnswerStream::append(text::TokenId token) {
  const bool opens = open_ && token == *open_;
  const bool closes = close_ && token == *close_;
  if (!opens && !closes) return emit(detokenizer_.append(token));
  emit(detokenizer_.flush());
  in_thought_ = opens;
  in_channel_name_ = opens;
}

void AnswerStream::finish() { emit(detokenizer_.flush()); }

}  // namespace carat::cli
