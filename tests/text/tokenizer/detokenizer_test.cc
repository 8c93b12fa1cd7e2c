#include "text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "support/random.h"
#include "text/demo_vocab.h"
#include "text/random_text.h"
#include "text/tokenizer/tokenizer.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

using test::VocabBuilder;

bool is_well_formed(std::string_view text) { return utf8_sanitise(text) == text; }

std::vector<TokenId> byte_tokens(const Vocab& vocab, std::string_view bytes) {
  std::vector<TokenId> tokens;
  for (const char c : bytes) tokens.push_back(vocab.byte_token(static_cast<uint8_t>(c)));
  return tokens;
}

TEST(Detokenizer, ShowsTextVisibleSpecialsAndSpaces) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  const std::vector<TokenId> tokens = {builder.id("<bos>"),      builder.id("\u2581a"), builder.id("<|channel>"),
                                       builder.id("\u2581"),     builder.id("bc"),      vocab->byte_token('!'),
                                       builder.id("<channel|>"), builder.id("<turn|>")};
  EXPECT_EQ(decode(vocab, tokens), " a<|channel> bc!<channel|>");
  EXPECT_EQ(decode(vocab, tokens, true), "<bos> a<|channel> bc!<channel|><turn|>");
}

TEST(Detokenizer, HoldsBackIncompleteCharacters) {
  const auto vocab = VocabBuilder().build();
  Detokenizer detokenizer(vocab);
  const auto tokens = byte_tokens(*vocab, "\U0001f999");
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(detokenizer.append(tokens[0]), "");
  EXPECT_EQ(detokenizer.append(tokens[1]), "");
  EXPECT_EQ(detokenizer.append(tokens[2]), "");
  EXPECT_EQ(detokenizer.append(tokens[3]), "\U0001f999");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, AControlTokenDoesNotInterruptACharacter) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  Detokenizer detokenizer(vocab);
  const auto tokens = byte_tokens(*vocab, "\u00e9");
  EXPECT_EQ(detokenizer.append(tokens[0]), "");
  EXPECT_EQ(detokenizer.append(builder.id("<pad>")), "");
  EXPECT_EQ(detokenizer.append(tokens[1]), "\u00e9");
}

TEST(Detokenizer, ReplacesWhatCanNeverBecomeACharacter) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  Detokenizer detokenizer(vocab);
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0x80)), "\ufffd");
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0xff)), "\ufffd");
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0xe2)), "");
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0x96)), "");
  EXPECT_EQ(detokenizer.append(builder.id("a")), "\ufffd\ufffda");
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0xf0)), "");
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0xf0)), "\ufffd");  // the first one is settled, the second is not
  EXPECT_EQ(detokenizer.append(vocab->byte_token(0x9f)), "");
  EXPECT_EQ(detokenizer.flush(), "\ufffd\ufffd");
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(detokenizer.append(builder.id("a")), "a");
}

// A U+2581 that the model spells in bytes is not a space token: it is the character itself.
TEST(Detokenizer, SpacesComeFromTokensNotFromBytes) {
  const auto vocab = VocabBuilder().build();
  EXPECT_EQ(decode(vocab, byte_tokens(*vocab, "\u2581")), "\u2581");
}

TEST(Detokenizer, RefusesTokensThatDoNotExist) {
  const auto vocab = VocabBuilder().build();
  Detokenizer detokenizer(vocab);
  EXPECT_THROW(detokenizer.append(-1), Error);
  EXPECT_THROW(detokenizer.append(static_cast<TokenId>(vocab->size())), Error);
}

// However a text is cut into tokens: every part handed out is well formed, and together they are the whole.
TEST(Detokenizer, EverySplitGivesWellFormedPartsOfTheSameText) {
  VocabBuilder builder;
  const std::string text =
      "a\u00e9\u65e5\U0001f999\xff"
      "b\xe2\x96";
  const std::string shown =
      "a\u00e9\u65e5\U0001f999\ufffd"
      "b\ufffd\ufffd";
  // One token for each piece that any split can produce.
  std::map<std::string, TokenId> pieces;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t length = 1; begin + length <= text.size(); ++length) {
      const std::string piece = text.substr(begin, length);
      if (!pieces.contains(piece)) pieces[piece] = builder.add_token(piece);
    }
  }
  const auto vocab = builder.build();
  const size_t gaps = text.size() - 1;
  ASSERT_LT(gaps, 20u);
  for (uint32_t cuts = 0; cuts < uint32_t{1} << gaps; ++cuts) {
    Detokenizer detokenizer(vocab);
    std::string whole, piece;
    for (size_t i = 0; i < text.size(); ++i) {
      piece += text[i];
      if (i < gaps && (cuts >> i & 1) == 0) continue;
      const std::string part = detokenizer.append(pieces.at(piece));
      ASSERT_TRUE(is_well_formed(part));
      whole += part;
      piece.clear();
    }
    ASSERT_EQ(whole + detokenizer.flush(), shown) << "cuts " << cuts;
  }
}

TEST(Detokenizer, RandomTokensNeverYieldHalfACharacter) {
  const auto vocab = test::demo_vocab();
  carat::test::Random random(31);
  for (int round = 0; round < 200; ++round) {
    Detokenizer detokenizer(vocab, round % 2 == 0);
    std::vector<TokenId> tokens;
    std::string whole;
    for (int i = 0; i < 100; ++i) {
      // Mostly bytes, mostly of long sequences.
      const TokenId token = random.below(4) == 0 ? static_cast<TokenId>(random.below(vocab->size()))
                                                 : vocab->byte_token(static_cast<uint8_t>(128 + random.below(128)));
      tokens.push_back(token);
      const std::string part = detokenizer.append(token);
      ASSERT_TRUE(is_well_formed(part));
      whole += part;
    }
    whole += detokenizer.flush();
    ASSERT_EQ(whole, decode(vocab, tokens, round % 2 == 0));
  }
}

TEST(Detokenizer, StreamsWhatTheTokenizerMade) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  carat::test::Random random(32);
  for (int round = 0; round < 500; ++round) {
    const std::string text = test::random_text(random, *vocab, 40);
    Detokenizer detokenizer(vocab);
    std::string whole;
    for (const TokenId token : tokenizer.encode(text)) {
      const std::string part = detokenizer.append(token);
      ASSERT_TRUE(is_well_formed(part));
      whole += part;
    }
    ASSERT_EQ(whole, text);  // nothing may be left for flush()
    ASSERT_EQ(detokenizer.flush(), "");
  }
}

}  // namespace
}  // namespace carat::text
