#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/special_matcher.h"
#include "text/tokenizer/vocab.h"

namespace carat::text {

// docs/gemma4.md 4.3: special-token split, spaces to U+2581, BPE over the whole fragment by rank. Thread-safe.
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

  // A text from several sources. The result is that of the joined text: ordinary characters merge across the borders of
  // segments. But a special text counts only where it lies wholly inside one segment with kParse.
  struct Segment {
    std::string_view text;
    Specials specials;
  };
  void encode(std::span<const Segment> segments, std::vector<TokenId>& out) const;

 private:
  void encode_fragment(std::string_view text, std::vector<TokenId>& out) const;
  void emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

  std::shared_ptr<const Vocab> vocab_;
  SpecialMatcher specials_;
  TokenId space_;  // the token of U+2581; -1 when there is none
};

}  // namespace carat::text
