#include "text/tokenizer/tokenizer.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/pair_merger.h"

namespace carat::text {

namespace {

constexpr uint32_t kSpaceSymbol = 0x2581;
constexpr std::string_view kSpaceSymbolText = "\xe2\x96\x81";
// The merger counts symbols in 32 bits.
constexpr size_t kMaxFragmentBytes = UINT32_MAX;

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Vocab> vocab)
    : vocab_(std::move(vocab)), specials_(*vocab_), space_(vocab_->symbols().find(kSpaceSymbol)) {}

std::vector<TokenId> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<TokenId> out;
  encode(text, specials, out);
  return out;
}

void Tokenizer::encode(std::string_view text, Specials specials, std::vector<TokenId>& out) const {
  if (specials == Specials::kPlainText) {
    encode_fragment(text, out);
  } else {
    const Segment segment{text, specials};
    encode(std::span(&segment, 1), out);
  }
}

void Tokenizer::encode(std::span<const Segment> segments, std::vector<TokenId>& out) const {
  std::string fragment;  // the ordinary text since the last special token
  for (const Segment& segment : segments) {
    size_t done = 0;
    if (segment.specials == Specials::kParse) {
      while (const auto match = specials_.next(segment.text, done)) {
        fragment += segment.text.substr(done, match->begin - done);
        encode_fragment(fragment, out);
        fragment.clear();
        out.push_back(match->token);
        done = match->end;
      }
    }
    fragment += segment.text.substr(done);
  }
  encode_fragment(fragment, out);
}

// Splits the fragment into pieces at every place no merge can cross, which leaves words in most scripts, and merges
// each piece by itself. The result is that of merging the whole: see BorderFilter.
void Tokenizer::encode_fragment(std::string_view text, std::vector<TokenId>& out) const {
  if (text.size() > kMaxFragmentBytes) {
    fail(ErrorCode::kBadArgument, "a text of {} bytes is too long to tokenize at once: the limit is {} bytes",
         text.size(), kMaxFragmentBytes);
  }
  const SymbolTable& symbols = vocab_->symbols();
  const BorderFilter& borders = vocab_->borders();
  PairMerger merger(vocab_->merges());
  std::vector<TokenId> piece;
  const auto finish_piece = [&] {
    const auto merged = merger.merge(piece);
    out.insert(out.end(), merged.begin(), merged.end());
    piece.clear();
  };

  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<uint8_t>(text[at]);
    const size_t length = first < 0x80 ? 1 : utf8_sequence_length(text.substr(at));
    TokenId symbol = -1;
    if (first == ' ') {
      symbol = space_;
    } else if (length != 0) {
      symbol = symbols.find(code_point_of(text.substr(at, length)));
    }
    if (!piece.empty() && (symbol < 0 || !borders.may_join(piece.back(), symbol))) finish_piece();
    const size_t taken = length == 0 ? 1 : length;
    if (symbol >= 0) {
      piece.push_back(symbol);
    } else {
      emit_bytes(first == ' ' ? kSpaceSymbolText : text.substr(at, taken), out);
    }
    at += taken;
  }
  finish_piece();
}

void Tokenizer::emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    TokenId token = vocab_->byte_token(byte);
    if (token < 0) token = vocab_->unknown();
    if (token < 0) {
      fail(ErrorCode::kUnsupported,
           "the text contains byte 0x{:02X}, for which the model's vocabulary has neither a byte token nor an unknown "
           "token",
           byte);
    }
    out.push_back(token);
  }
}

}  // namespace carat::text
