#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/random.h"
#include "text/demo_vocab.h"
#include "text/naive_bpe.h"
#include "text/random_text.h"
#include "text/tokenizer/detokenizer.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

using Specials = Tokenizer::Specials;
using test::VocabBuilder;

TEST(Tokenizer, MergesByRank) {
  const VocabBuilder builder;
  const Tokenizer tokenizer(builder.build());
  const auto ids = [&](std::initializer_list<const char*> texts) {
    std::vector<TokenId> out;
    for (const char* text : texts) out.push_back(builder.id(text));
    return out;
  };
  EXPECT_EQ(tokenizer.encode(""), ids({}));
  EXPECT_EQ(tokenizer.encode("abc"), ids({"abc"}));
  EXPECT_EQ(tokenizer.encode("bc"), ids({"bc"}));
  EXPECT_EQ(tokenizer.encode("bcab"), ids({"bc", "ab"}));
  EXPECT_EQ(tokenizer.encode(" a a"), ids({"\u2581a", "\u2581a"}));
  EXPECT_EQ(tokenizer.encode(" ab"), ids({"\u2581", "ab"}));  // (a, b) ranks before (space, a)
  EXPECT_EQ(tokenizer.encode("\u2581ab"), tokenizer.encode(" ab"));
  EXPECT_EQ(tokenizer.encode("a\n\nb\n"), ids({"a", "\n\n", "b", "\n"}));
  EXPECT_EQ(tokenizer.encode("</s>"), ids({"<", "/", "s", ">"}));  // a token that no merge makes
}

TEST(Tokenizer, AppendsToWhatIsThere) {
  const VocabBuilder builder;
  const Tokenizer tokenizer(builder.build());
  std::vector<TokenId> out = {1};
  tokenizer.encode("ab", Specials::kPlainText, out);
  tokenizer.encode("<bos>ab", Specials::kParse, out);
  EXPECT_EQ(out, (std::vector<TokenId>{1, builder.id("ab"), builder.id("<bos>"), builder.id("ab")}));
}

TEST(Tokenizer, CharactersWithoutATokenBecomeBytes) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  const Tokenizer tokenizer(vocab);
  const auto bytes = [&](std::string_view text) {
    std::vector<TokenId> out;
    for (const char c : text) out.push_back(vocab->byte_token(static_cast<uint8_t>(c)));
    return out;
  };
  for (const std::string_view text : {std::string_view("Z"), std::string_view("\u00e9"), std::string_view("\U0001f999"),
                                      std::string_view("\0", 1), std::string_view("\xff\xfe\x80"),
                                      std::string_view("\xed\xa0\x80"),     // a lone surrogate
                                      std::string_view("\xc0\xaf"),         // overlong
                                      std::string_view("\xf0\x9f\xa6")}) {  // cut off
    EXPECT_EQ(tokenizer.encode(text), bytes(text));
  }
  auto expected = std::vector<TokenId>{builder.id("a")};
  for (const TokenId byte : bytes("\xf0\x9f")) expected.push_back(byte);
  expected.push_back(builder.id("bc"));
  EXPECT_EQ(tokenizer.encode("a\xf0\x9f"
                             "bc"),
            expected);
}

TEST(Tokenizer, SpecialTextsCountOnlyWhereTheyAreParsed) {
  const VocabBuilder builder;
  const Tokenizer tokenizer(builder.build());
  const std::string text = "a<turn|> <|turn>b<turn|";
  const auto parsed = tokenizer.encode(text, Specials::kParse);
  std::vector<TokenId> expected = {builder.id("a"), builder.id("<turn|>"), builder.id("\u2581"), builder.id("<|turn>")};
  for (const TokenId token : tokenizer.encode("b<turn|")) expected.push_back(token);
  EXPECT_EQ(parsed, expected);
  for (const TokenId token : tokenizer.encode(text)) EXPECT_FALSE(tokenizer.vocab().is_special(token));
}

TEST(Tokenizer, TheLongestSpecialWins) {
  VocabBuilder builder;
  const TokenId longer = builder.add_token("<turn|>>", TokenType::kUserDefined);
  const TokenId inner = builder.add_token("rn|", TokenType::kUserDefined);
  const Tokenizer tokenizer(builder.build());
  EXPECT_EQ(tokenizer.encode("<turn|>>", Specials::kParse), std::vector<TokenId>{longer});
  EXPECT_EQ(tokenizer.encode("<turn|>", Specials::kParse), std::vector<TokenId>{builder.id("<turn|>")});
  auto expected = tokenizer.encode("<tu");
  expected.push_back(inner);
  EXPECT_EQ(tokenizer.encode("<turn|", Specials::kParse), expected);
}

TEST(Tokenizer, SegmentsJoinAsTextButNotAsSpecials) {
  const VocabBuilder builder;
  const Tokenizer tokenizer(builder.build());
  const auto encode = [&](std::initializer_list<Tokenizer::Segment> segments) {
    std::vector<TokenId> out;
    tokenizer.encode(std::span(segments.begin(), segments.size()), out);
    return out;
  };
  EXPECT_EQ(encode({{"<bos>a", Specials::kParse}, {"bc", Specials::kPlainText}}),
            (std::vector<TokenId>{builder.id("<bos>"), builder.id("abc")}));
  EXPECT_EQ(encode({{"<tu", Specials::kParse}, {"rn|>", Specials::kParse}}), tokenizer.encode("<turn|>"));
  EXPECT_EQ(encode({{"<tu", Specials::kPlainText}, {"rn|>", Specials::kParse}}), tokenizer.encode("<turn|>"));
  EXPECT_EQ(encode({{"<turn|>", Specials::kPlainText}, {"<turn|>", Specials::kParse}}).back(), builder.id("<turn|>"));
  EXPECT_EQ(encode({}), std::vector<TokenId>{});
}

// The cuts at places no merge can cross must not show. Random vocabularies, whose merges come in any order.
TEST(Tokenizer, EqualsTheDefinitionForRandomVocabularies) {
  carat::test::Random random(21);
  for (int round = 0; round < 60; ++round) {
    VocabBuilder builder;
    std::vector<std::string> parts = {"a", "b", "c", "d", "e", "\n", "\u2581", "<", ">"};
    for (const char* text : {"\u00e9", "\u65e5", "\U0001f600"}) {
      builder.add_token(text);
      parts.emplace_back(text);
    }
    for (uint64_t merges = random.below(80); merges > 0; --merges) {
      const std::string left = parts[random.below(parts.size())], right = parts[random.below(parts.size())];
      if (left.size() + right.size() > 60) continue;
      builder.add_merge(left, right);
      parts.push_back(left + right);
    }
    const auto vocab = builder.build();
    const Tokenizer tokenizer(vocab);
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (uint64_t length = random.below(80); length > 0; --length) {
        const auto& pool = test::kAwkwardCharacters;
        text += random.below(8) == 0 ? std::string(pool[random.below(pool.size())]) : parts[random.below(12)];
      }
      ASSERT_EQ(tokenizer.encode(text), test::naive_encode(*vocab, text)) << text;
    }
  }
}

TEST(Tokenizer, EqualsTheDefinitionForTheDemoVocabulary) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  carat::test::Random random(22);
  for (int i = 0; i < 400; ++i) {
    const std::string text = test::random_text(random, *vocab, 120);
    ASSERT_EQ(tokenizer.encode(text), test::naive_encode(*vocab, text)) << text;
  }
}

TEST(Tokenizer, ReproducesTheReferencePrompts) {
  const Tokenizer tokenizer(test::demo_vocab());
  const auto prompts = test::reference_prompts();
  ASSERT_GE(prompts.size(), 21u);
  for (const auto& prompt : prompts) {
    EXPECT_EQ(tokenizer.encode(prompt.text, Specials::kParse), prompt.tokens) << prompt.name;
  }
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  carat::test::Random random(23);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = test::random_text(random, *vocab, 60);
    ASSERT_EQ(decode(vocab, tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  const auto prompts = test::reference_prompts();
  std::vector<std::thread> threads;
  std::array<int, 4> wrong = {};
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (const auto& prompt : prompts) wrong[i] += tokenizer.encode(prompt.text, Specials::kParse) != prompt.tokens;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace carat::text
