#pragma once

#include <memory>
#include <span>
#include <string>

#include "text/tokenizer/vocab.h"

namespace carat::text {

// Appends the bytes a token stands for: a byte token its byte, any other its text with spaces for U+2581.
void append_spelling(const Vocab& vocab, TokenId id, std::string& out);

// Turns a stream of tokens into text and never hands out half a character: bytes of an incomplete UTF-8 sequence are
// held back until they are complete or provably malformed (then each becomes U+FFFD). One stream per object.
class Detokenizer {
 public:
  // show_control: control tokens appear as their text instead of nothing.
  explicit Detokenizer(std::shared_ptr<const Vocab> vocab, bool show_control = false);

  std::string append(TokenId token);  // the text that is now certain; may be empty
  std::string flush();                // what was held back, at the end of the stream

 private:
  std::shared_ptr<const Vocab> vocab_;
  bool show_control_;
  std::string pending_;
};

std::string decode(const std::shared_ptr<const Vocab>& vocab, std::span<const TokenId> tokens,
                   bool show_control = false);

}  // namespace carat::text
