#include "text/tokenizer/vocab.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/files.h"
#include "text/demo_vocab.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

using test::VocabBuilder;

TEST(Vocab, HoldsWhatTheFileSays) {
  VocabBuilder builder;
  builder.chat_template = "{{ bos_token }}";
  builder.suppressed = std::vector<int32_t>{4, 7};
  const auto vocab = builder.build();
  ASSERT_EQ(vocab->size(), builder.tokens->size());
  for (size_t i = 0; i < vocab->size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    EXPECT_EQ(vocab->text(id), (*builder.tokens)[i]);
    EXPECT_EQ(static_cast<int32_t>(vocab->type(id)), (*builder.types)[i]);
    EXPECT_EQ(vocab->find((*builder.tokens)[i]), id);
  }
  EXPECT_EQ(vocab->bos(), builder.id("<bos>"));
  EXPECT_EQ(vocab->eos(), builder.id("<eos>"));
  EXPECT_EQ(vocab->unknown(), builder.id("<unk>"));
  EXPECT_EQ(vocab->find("absent"), std::nullopt);
  EXPECT_EQ(vocab->chat_template(), "{{ bos_token }}");
  EXPECT_EQ(vocab->suppressed(), (std::vector<TokenId>{4, 7}));
  EXPECT_FALSE(vocab->contains(-1));
  EXPECT_FALSE(vocab->contains(static_cast<TokenId>(vocab->size())));
  EXPECT_TRUE(vocab->contains(0));
}

TEST(Vocab, KnowsMergesByRank) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  const auto merge = vocab->merge(builder.id("b"), builder.id("c"));
  ASSERT_TRUE(merge);
  EXPECT_EQ(merge->rank, 2u);
  EXPECT_EQ(merge->result, builder.id("bc"));
  EXPECT_FALSE(vocab->merge(builder.id("c"), builder.id("b")));
}

TEST(Vocab, KnowsEveryByte) {
  const auto vocab = VocabBuilder().build();
  for (int byte = 0; byte < 256; ++byte) {
    const TokenId id = vocab->byte_token(static_cast<uint8_t>(byte));
    ASSERT_GE(id, 0);
    EXPECT_EQ(vocab->byte_value(id), byte);
  }
  EXPECT_EQ(vocab->byte_value(vocab->bos()), std::nullopt);
}

TEST(Vocab, StopsAreFoundByTextAndTheHtmlTagIsNone) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  EXPECT_EQ(vocab->stops().size(), 3u);
  for (const char* text : {"<eos>", "<turn|>", "<|tool_response>"})
    EXPECT_TRUE(vocab->is_stop(builder.id(text))) << text;
  for (const char* text : {"</s>", "<bos>", "<tool_response|>", "a"})
    EXPECT_FALSE(vocab->is_stop(builder.id(text))) << text;
}

TEST(Vocab, TheFilesEosIsAStopToo) {
  VocabBuilder builder;
  const TokenId other = builder.add_token("<end>", TokenType::kControl);
  builder.ids["eos"] = static_cast<uint32_t>(other);
  const auto vocab = builder.build();
  EXPECT_EQ(vocab->eos(), other);
  EXPECT_TRUE(vocab->is_stop(other));
  EXPECT_TRUE(vocab->is_stop(builder.id("<eos>")));
  EXPECT_EQ(vocab->stops().size(), 4u);
}

TEST(Vocab, GemmasSpecialsHaveTheirTypesWhateverTheFileSays) {
  VocabBuilder builder;
  const auto retype = [&](const char* text, TokenType type) {
    (*builder.types)[static_cast<size_t>(builder.id(text))] = static_cast<int32_t>(type);
  };
  retype("<eos>", TokenType::kNormal);        // as in early files
  retype("<|channel>", TokenType::kControl);  // as converters that know no visible specials write it
  retype("<unk>", TokenType::kUnknown);
  const auto vocab = builder.build();
  EXPECT_EQ(vocab->type(builder.id("<eos>")), TokenType::kControl);
  EXPECT_EQ(vocab->type(builder.id("<unk>")), TokenType::kControl);
  EXPECT_EQ(vocab->type(builder.id("<|channel>")), TokenType::kUserDefined);
  EXPECT_TRUE(vocab->is_special(builder.id("<eos>")));
  EXPECT_TRUE(vocab->is_special(builder.id("<|channel>")));
  EXPECT_FALSE(vocab->is_special(builder.id("a")));
}

TEST(Vocab, SpecialsAreLongestFirstAndComplete) {
  const VocabBuilder builder;
  const auto vocab = builder.build();
  const auto& specials = vocab->specials();
  EXPECT_EQ(specials.size(), 12u);
  EXPECT_TRUE(std::is_sorted(specials.begin(), specials.end(),
                             [&](TokenId a, TokenId b) { return vocab->text(a).size() > vocab->text(b).size(); }));
  EXPECT_EQ(std::count(specials.begin(), specials.end(), builder.id("<turn|>")), 1);
}

TEST(Vocab, SpecialIdsAreFoundByTextWhenTheFileNamesNone) {
  VocabBuilder builder;
  builder.ids.clear();
  const auto vocab = builder.build();
  EXPECT_EQ(vocab->bos(), builder.id("<bos>"));
  EXPECT_EQ(vocab->eos(), builder.id("<eos>"));
  EXPECT_EQ(vocab->unknown(), -1);
}

TEST(Vocab, ReadsOllamasSpellingOfTheModel) {
  VocabBuilder builder;
  builder.model = "llama";
  builder.pre = "gemma4";
  EXPECT_EQ(builder.build()->size(), builder.tokens->size());
}

TEST(Vocab, ReadsTheDemoModels) {
  const auto vocab = test::demo_vocab();
  EXPECT_GT(vocab->size(), 4000u);
  EXPECT_FALSE(vocab->chat_template().empty());
  EXPECT_EQ(vocab->text(vocab->bos()), "<bos>");
  EXPECT_EQ(vocab->text(vocab->eos()), "<eos>");
  EXPECT_EQ(vocab->stops().size(), 3u);
  for (const char* name : {"demo-moe-q8_0.gguf", "demo-e-assistant-q8_0.gguf"}) {
    const auto file = gguf::ModelFile::open(carat::test::model_path(name));
    if (file->metadata().find("tokenizer.ggml.tokens") == nullptr) continue;  // a drafter may use its model's
    EXPECT_EQ(Vocab::from_metadata(file->metadata())->size(), vocab->size()) << name;
  }
}

}  // namespace
}  // namespace carat::text
