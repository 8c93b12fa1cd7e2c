// Vocabularies that a damaged or hostile file may hold: each is refused with a message that names the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

using test::VocabBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostileVocab, AnotherTokenizer) {
  VocabBuilder builder;
  builder.model = "gpt2";
  EXPECT_THAT(builder.error(ErrorCode::kUnsupported), AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("gpt2")));
  builder.model = "llama";  // SentencePiece, unless the second key says otherwise
  EXPECT_THAT(builder.error(ErrorCode::kUnsupported), HasSubstr("tokenizer.ggml.model"));
  builder.pre = "default";
  EXPECT_THAT(builder.error(ErrorCode::kUnsupported), HasSubstr("tokenizer.ggml.pre"));
}

TEST(HostileVocab, MissingKeys) {
  const auto without = [](auto member) {
    VocabBuilder builder;
    (builder.*member).reset();
    return builder.error();
  };
  EXPECT_THAT(without(&VocabBuilder::model), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(without(&VocabBuilder::tokens), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(without(&VocabBuilder::types), HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(without(&VocabBuilder::merges), HasSubstr("tokenizer.ggml.merges"));
  VocabBuilder no_scores;
  no_scores.scores.reset();  // they have no meaning for this tokenizer
  EXPECT_NE(no_scores.build(), nullptr);
}

TEST(HostileVocab, KeysOfTheWrongType) {
  const auto build = [](std::string_view key, gguf::Value value) {
    gguf::Metadata metadata;
    metadata.add("tokenizer.ggml.model", {gguf::ValueType::kString, std::string_view("gemma4")});
    metadata.add(key, std::move(value));
    return Vocab::from_metadata(metadata);
  };
  EXPECT_THROW(build("tokenizer.ggml.tokens", {gguf::ValueType::kU32, uint64_t{7}}), Error);
  gguf::Array numbers;
  numbers.element = gguf::ValueType::kU8;
  EXPECT_THROW(build("tokenizer.ggml.tokens", {gguf::ValueType::kArray, numbers}), Error);
}

TEST(HostileVocab, NoTokensAtAll) {
  VocabBuilder builder;
  builder.tokens->clear();
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(HostileVocab, ByteTokensThatAreNone) {
  for (const char* text :
       {"<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "<0X41>", "<0x41", "0x41", "", "<0x 1>", "<0x4\xff>"}) {
    VocabBuilder builder;
    const TokenId id = builder.add_token(text, TokenType::kByte);
    EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.tokens[" + std::to_string(id) + "]")) << text;
  }
}

TEST(HostileVocab, AHugeToken) {
  VocabBuilder builder;
  const TokenId id = builder.add_token(std::string(Vocab::kMaxTokenBytes + 1, 'x'));
  const std::string message = builder.error();
  EXPECT_THAT(message, AllOf(HasSubstr("tokenizer.ggml.tokens[" + std::to_string(id) + "]"), HasSubstr("1025")));
  EXPECT_LT(message.size(), 400u);
  builder.tokens->back() = std::string(Vocab::kMaxTokenBytes, 'x');
  EXPECT_NE(builder.build(), nullptr);
}

TEST(HostileVocab, ATokenOfAGibibyte) {
  // As a mapped file would present it: readable, but without memory of its own.
  constexpr size_t kBytes = size_t{1} << 30;
  void* pages = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  gguf::Array tokens;
  tokens.element = gguf::ValueType::kString;
  tokens.count = 2;
  tokens.strings = {"a", std::string_view(static_cast<const char*>(pages), kBytes)};
  gguf::Metadata metadata;
  metadata.add("tokenizer.ggml.model", {gguf::ValueType::kString, std::string_view("gemma4")});
  metadata.add("tokenizer.ggml.tokens", {gguf::ValueType::kArray, std::move(tokens)});
  try {
    Vocab::from_metadata(metadata);
    ADD_FAILURE() << "the token was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tokenizer.ggml.tokens[1]"), HasSubstr("1073741824")));
  }
  ::munmap(pages, kBytes);
}

TEST(HostileVocab, SpecialIdsBeyondTheVocabulary) {
  for (const char* name : {"bos", "eos", "unknown", "padding", "mask", "separator", "cls", "eot", "eom"}) {
    VocabBuilder builder;
    builder.ids[name] = static_cast<uint32_t>(builder.tokens->size());
    EXPECT_THAT(builder.error(), HasSubstr(std::string("tokenizer.ggml.") + name + "_token_id"));
    builder.ids[name] = UINT32_MAX;
    EXPECT_THAT(builder.error(), HasSubstr(std::string("tokenizer.ggml.") + name + "_token_id"));
  }
}

TEST(HostileVocab, NoBeginningAndNoEnd) {
  VocabBuilder builder;
  builder.ids.clear();
  (*builder.tokens)[static_cast<size_t>(builder.id("<bos>"))] = "<begin>";
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.bos_token_id"));
}

TEST(HostileVocab, SuppressedTokensBeyondTheVocabulary) {
  for (const int32_t id : {-1, std::numeric_limits<int32_t>::max()}) {
    VocabBuilder builder;
    builder.suppressed = std::vector<int32_t>{0, id};
    EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.suppress_tokens[1]"));
  }
}

TEST(HostileVocab, ArraysOfTheWrongLength) {
  VocabBuilder builder;
  builder.types->pop_back();
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.token_type"));
  builder = {};
  builder.types->push_back(1);
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.token_type"));
  builder = {};
  builder.scores->pop_back();
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.scores"));
}

TEST(HostileVocab, TypesThatDoNotExist) {
  for (const int32_t type : {0, 7, -1, std::numeric_limits<int32_t>::min()}) {
    VocabBuilder builder;
    builder.types->back() = type;
    EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.token_type["));
  }
}

TEST(HostileVocab, ScoresThatAreNotNumbers) {
  VocabBuilder builder;
  (*builder.scores)[5] = std::nanf("");
  EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.scores[5]"));
}

TEST(HostileVocab, MergesThatAreNone) {
  const std::string huge(size_t{1} << 20, 'a');
  for (const std::string& merge :
       {std::string("ab"), std::string(""), std::string(" "), std::string("a"), huge, huge + " a"}) {
    VocabBuilder builder;
    builder.merges->push_back(merge);
    EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.merges[5]")) << merge.substr(0, 20);
  }
}

TEST(HostileVocab, MergesOfUnknownTokens) {
  for (const char* merge : {"q a", "a q", "a a", "a b c", "a ", " a"}) {
    VocabBuilder builder;
    builder.merges->push_back(merge);
    EXPECT_THAT(builder.error(), HasSubstr("tokenizer.ggml.merges[5]")) << merge;
  }
}

// Otherwise text that a user typed could end a turn.
TEST(HostileVocab, MergesThatMakeSpecialTokens) {
  for (const char* special : {"<turn|>", "<|channel>", "<0x41>"}) {
    VocabBuilder builder;
    const std::string text = special;
    builder.add_token(text.substr(0, 3));
    builder.add_token(text.substr(3));
    builder.add_merge(text.substr(0, 3), text.substr(3));
    EXPECT_THAT(builder.error(), AllOf(HasSubstr("tokenizer.ggml.merges[5]"), HasSubstr(special)));
  }
}

TEST(HostileVocab, ControlTokensOfOneCharacterAreNotReachedFromText) {
  VocabBuilder builder;
  const TokenId control = builder.add_token("#", TokenType::kControl);
  const auto vocab = builder.build();
  const Tokenizer tokenizer(vocab);
  EXPECT_EQ(tokenizer.encode("#"), std::vector<TokenId>{vocab->byte_token('#')});
  EXPECT_EQ(tokenizer.encode("#", Tokenizer::Specials::kParse), std::vector<TokenId>{control});
}

TEST(HostileVocab, EqualTextsMeanTheFirstToken) {
  VocabBuilder builder;
  const TokenId second = builder.add_token("a");
  const TokenId second_bos = builder.add_token("<bos>", TokenType::kControl);
  const TokenId second_byte = builder.add_token("<0x41>", TokenType::kByte);
  builder.merges->push_back("a b");  // once more, at a worse rank
  const auto vocab = builder.build();
  EXPECT_EQ(vocab->find("a"), builder.id("a"));
  EXPECT_NE(vocab->find("a"), second);
  EXPECT_EQ(vocab->byte_token('A'), builder.id("<0x41>"));
  EXPECT_EQ(vocab->merge(builder.id("a"), builder.id("b"))->rank, 1u);
  const Tokenizer tokenizer(vocab);
  EXPECT_EQ(tokenizer.encode("<bos>a", Tokenizer::Specials::kParse),
            (std::vector<TokenId>{builder.id("<bos>"), builder.id("a")}));
  // The copies still have a text.
  const std::vector<TokenId> copies = {second, second_bos, second_byte};
  EXPECT_EQ(decode(vocab, copies), "aA");
}

TEST(HostileVocab, EmptyTextsNeverMatch) {
  VocabBuilder builder;
  builder.add_token("", TokenType::kControl);
  builder.add_token("", TokenType::kUserDefined);
  const TokenId empty = builder.add_token("");
  const auto vocab = builder.build();
  EXPECT_EQ(Tokenizer(vocab).encode("ab", Tokenizer::Specials::kParse), std::vector<TokenId>{builder.id("ab")});
  EXPECT_EQ(decode(vocab, std::vector<TokenId>{empty, builder.id("a")}), "a");
}

TEST(HostileVocab, TextsThatAreNotUtf8AreShownAsReplacements) {
  VocabBuilder builder;
  const TokenId bad = builder.add_token("\xff\xfe");
  const auto vocab = builder.build();
  EXPECT_EQ(decode(vocab, std::vector<TokenId>{bad}), "\ufffd\ufffd");
  EXPECT_EQ(Tokenizer(vocab).encode("\xff\xfe"),
            (std::vector<TokenId>{vocab->byte_token(0xff), vocab->byte_token(0xfe)}));
}

TEST(HostileVocab, WithoutByteTokensUnknownCharactersAreUnknownOrAnError) {
  VocabBuilder builder;
  for (int byte = 0; byte < 256; ++byte) {
    (*builder.types)[static_cast<size_t>(builder.id("<0x00>") + byte)] = static_cast<int32_t>(TokenType::kNormal);
  }
  EXPECT_EQ(Tokenizer(builder.build()).encode("aZ"), (std::vector<TokenId>{builder.id("a"), builder.id("<unk>")}));
  builder.ids.erase("unknown");
  const Tokenizer tokenizer(builder.build());
  EXPECT_EQ(tokenizer.encode("a"), std::vector<TokenId>{builder.id("a")});
  EXPECT_THROW(tokenizer.encode("aZ"), Error);
}

}  // namespace
}  // namespace carat::text
