// Vocabularies of any content: each is refused with carat::Error, or tokenizer and detokenizer can live with it.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "fuzz_check.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocab.h"
#include "vocab_script.h"

namespace {

using carat::text::TokenId;
using carat::text::Tokenizer;
using carat::text::Vocab;

void check_vocab(const Vocab& vocab) {
  FUZZ_CHECK(vocab.size() > 0 && vocab.contains(vocab.bos()) && vocab.contains(vocab.eos()));
  FUZZ_CHECK(!vocab.contains(-1) && !vocab.contains(static_cast<TokenId>(vocab.size())));
  for (TokenId id = 0; vocab.contains(id); ++id) {
    const auto found = vocab.find(vocab.text(id));
    FUZZ_CHECK(vocab.text(id).empty() ? !found : found && vocab.text(*found) == vocab.text(id));
    FUZZ_CHECK(vocab.byte_value(id).has_value() == (vocab.type(id) == carat::text::TokenType::kByte));
  }
  for (const auto* ids : {&vocab.stops(), &vocab.suppressed(), &vocab.specials()}) {
    for (const TokenId id : *ids) FUZZ_CHECK(vocab.contains(id));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const TokenId id = vocab.byte_token(static_cast<uint8_t>(byte));
    FUZZ_CHECK(id == -1 || vocab.byte_value(id) == byte);
  }
}

void check_encoding(const std::shared_ptr<const Vocab>& vocab, const std::string& text) {
  const Tokenizer tokenizer(vocab);
  for (const auto specials : {Tokenizer::Specials::kPlainText, Tokenizer::Specials::kParse}) {
    const std::vector<TokenId> tokens = tokenizer.encode(text, specials);
    for (const TokenId id : tokens) FUZZ_CHECK(vocab->contains(id));
    const std::string decoded = carat::text::decode(vocab, tokens, true);
    FUZZ_CHECK(carat::utf8_sanitise(decoded) == decoded);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const carat::fuzz::VocabScript script({reinterpret_cast<const char*>(data), size});
    const auto vocab = Vocab::from_metadata(script.metadata());
    check_vocab(*vocab);
    check_encoding(vocab, script.text());
  } catch (const carat::Error&) {
  }
  return 0;
}
