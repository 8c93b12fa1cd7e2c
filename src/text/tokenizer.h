#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace carat::text {

// Spec 4.3: special-token split, spaces to U+2581, BPE over the whole fragment by rank with a heap. Thread-safe.
class Tokenizer {
 public:
  enum class Specials {
    kPlainText,  // "<turn|>" in the text is seven ordinary characters: for everything a user or tool supplies
    kParse,      // special texts become their tokens: for what a template wrote
  };

  explicit Tokenizer(std::shared_ptr<const Vocab> vocab);

  const Vocab& vocab() const { return *vocab_; }
  // Appends; never adds BOS. Any bytes are accepted; malformed UTF-8 becomes byte tokens.
  void encode(std::string_view text, Specials specials, std::vector<TokenId>& out) const;
  std::vector<TokenId> encode(std::string_view text, Specials specials = Specials::kPlainText) const;

 private:
  void encode_fragment(std::string_view text, std::vector<TokenId>& out) const;
  std::shared_ptr<const Vocab> vocab_;
};

}  // namespace carat::text
