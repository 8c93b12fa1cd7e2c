// Encoding arbitrary bytes with the demo vocabulary and decoding them again gives the same text.
#include <cstdint>
#include <string>

#include "base/utf8.h"
#include "demo_vocab.h"
#include "fuzz_check.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using carat::text::TokenId;
using carat::text::Tokenizer;
using carat::text::TokenType;

// What decoding must give: malformed bytes are replaced, and U+2581 is how the vocabulary writes a space.
std::string expected_text(std::string_view text) {
  constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";
  std::string clean = carat::utf8_sanitise(text);
  for (size_t at = 0; (at = clean.find(kSpaceSymbol, at)) != std::string::npos; ++at) {
    clean.replace(at, kSpaceSymbol.size(), " ");
  }
  return clean;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto& vocab = carat::fuzz::demo_vocab();
  static const Tokenizer tokenizer(vocab);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string expected = expected_text(text);

  const std::vector<TokenId> plain = tokenizer.encode(text, Tokenizer::Specials::kPlainText);
  for (const TokenId id : plain) FUZZ_CHECK(vocab->contains(id) && vocab->type(id) != TokenType::kControl);
  FUZZ_CHECK(carat::text::decode(vocab, plain) == expected);

  const std::vector<TokenId> parsed = tokenizer.encode(text, Tokenizer::Specials::kParse);
  for (const TokenId id : parsed) FUZZ_CHECK(vocab->contains(id));
  FUZZ_CHECK(carat::text::decode(vocab, parsed, true) == expected);

  // Where a text is cut into segments makes no difference.
  const size_t cut = size == 0 ? 0 : data[0] % (size + 1);
  const Tokenizer::Segment segments[] = {{text.substr(0, cut), Tokenizer::Specials::kPlainText},
                                         {text.substr(cut), Tokenizer::Specials::kPlainText}};
  std::vector<TokenId> joined;
  tokenizer.encode(segments, joined);
  FUZZ_CHECK(joined == plain);
  return 0;
}
