// Any sequence of token ids, also ids that do not exist, streams out as whole characters.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "demo_vocab.h"
#include "fuzz_check.h"
#include "text/tokenizer/detokenizer.h"

namespace {

using carat::text::TokenId;

// Two bytes per token. Most select an existing one, with the byte tokens far more often than by chance, because only
// they can leave a character unfinished.
TokenId token_of(uint16_t choice) {
  const auto& vocab = carat::fuzz::demo_vocab();
  if (choice >= 0xff00) return static_cast<TokenId>(vocab->size()) + choice - 0xff80;  // some exist, some do not
  if (choice >= 0x8000) return vocab->byte_token(static_cast<uint8_t>(choice));
  return static_cast<TokenId>(choice % vocab->size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto& vocab = carat::fuzz::demo_vocab();
  const bool show_control = size % 2 == 1;
  carat::text::Detokenizer stream(vocab, show_control);
  std::vector<TokenId> accepted;
  std::string text;
  for (size_t at = 0; at + 2 <= size; at += 2) {
    uint16_t choice;
    std::memcpy(&choice, data + at, sizeof choice);
    const TokenId token = token_of(choice);
    bool known = true;
    try {
      const std::string piece = stream.append(token);
      FUZZ_CHECK(carat::utf8_sanitise(piece) == piece);
      text += piece;
      accepted.push_back(token);
    } catch (const carat::Error&) {
      known = false;
    }
    FUZZ_CHECK(known == vocab->contains(token));
  }
  const std::string rest = stream.flush();
  FUZZ_CHECK(carat::utf8_sanitise(rest) == rest);
  FUZZ_CHECK(text + rest == carat::text::decode(vocab, accepted, show_control));
  FUZZ_CHECK(stream.flush().empty());
  return 0;
}
