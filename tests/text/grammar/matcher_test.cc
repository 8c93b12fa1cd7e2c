#include "text/grammar/matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "support/random.h"
#include "text/demo_vocab.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_builder.h"
#include "text/grammar/naive_recogniser.h"
#include "text/tokenizer/tokenizer.h"
#include "text/vocab_builder.h"

namespace carat::text::grammar {
namespace {

using carat::test::Random;
using test::NaiveRecogniser;

// Bytes, a few letters, and tokens that cross the borders of the parts of the grammars below.
std::shared_ptr<const Vocab> small_vocab() {
  static const auto vocab = [] {
    text::test::VocabBuilder builder;
    for (const char* text : {"aa", "aaa", "ba", "ca", "abab", "bb", "cc", "aab", "\xc3\xa9",
                             "\xc3\xa9"
                             "a",
                             "a\xc3",
                             "a\xe2\x96\x81"
                             "b",
                             "abcabc", "\xf0\x9f\x98\x80"}) {
      builder.add_token(text);
    }
    builder.add_token("bc", TokenType::kUnused);
    return builder.build();
  }();
  return vocab;
}

TokenMask brute_force_mask(NaiveRecogniser& recogniser, const TokenTrie& trie, const std::string& text) {
  TokenMask mask(trie.vocab().size());
  for (size_t i = 0; i < trie.vocab().size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const std::string_view bytes = trie.bytes(token);
    if (!bytes.empty() && recogniser.can_begin(text + std::string(bytes))) mask.set(token);
  }
  if (recogniser.matches(text)) {
    for (const TokenId stop : trie.vocab().stops()) mask.set(stop);
  }
  return mask;
}

TokenId pick(Random& random, const TokenMask& mask) {
  uint64_t left = random.below(mask.count());
  TokenId picked = -1;
  mask.for_each([&](TokenId token) {
    if (left-- == 0) picked = token;
  });
  return picked;
}

// Follows random allowed tokens and compares each mask with that of the naive recogniser.
void check_walks(const Grammar& grammar, const std::shared_ptr<const TokenTrie>& trie, Random& random, int walks,
                 size_t longest, const std::string& source) {
  const auto compiled = compile(grammar, trie);
  NaiveRecogniser recogniser(grammar);
  for (int walk = 0; walk < walks; ++walk) {
    GrammarMatcher matcher(compiled);
    std::string text;
    while (text.size() < longest) {
      const TokenMask& mask = matcher.allowed();
      ASSERT_FALSE(mask.empty()) << source << "\nafter " << text;
      ASSERT_EQ(matcher.can_end(), recogniser.matches(text)) << source << "\nafter " << text;
      const TokenMask expected = brute_force_mask(recogniser, *trie, text);
      if (mask != expected) {
        for (size_t i = 0; i < mask.size(); ++i) {
          const auto token = static_cast<TokenId>(i);
          ASSERT_EQ(mask.allows(token), expected.allows(token))
              << source << "\nafter \"" << text << "\": " << trie->vocab().text(token);
        }
      }
      const TokenId token = pick(random, mask);
      if (trie->vocab().is_stop(token)) break;
      matcher.accept(token);
      text += trie->bytes(token);
    }
  }
}

// A random grammar in GBNF. Rules call rules of higher number, and any rule after something that reads a byte.
class RandomGrammar {
 public:
  explicit RandomGrammar(Random& random) : random_(random), rules_(1 + random.below(4)) {}

  std::string source() {
    std::string source;
    for (uint64_t rule = 0; rule < rules_; ++rule) {
      source += fmt::format("{} ::= {}\n", name(rule), choice(rule, 3));
    }
    return source;
  }

 private:
  static std::string name(uint64_t rule) { return rule == 0 ? "root" : fmt::format("r{}", rule); }

  std::string choice(uint64_t rule, int depth) {
    std::string text = sequence(rule, depth);
    for (uint64_t more = random_.below(3); more > 0; --more) text += " | " + sequence(rule, depth);
    return text;
  }

  std::string sequence(uint64_t rule, int depth) {
    std::string text;
    bool reads = false;
    for (uint64_t parts = random_.below(4); parts > 0; --parts) text += item(rule, depth, reads) + " ";
    return text.empty() ? "\"\"" : text;
  }

  std::string item(uint64_t rule, int depth, bool& reads) {
    static constexpr std::string_view kReading[] = {
        "\"a\"", "\"ab\"",   "\"b\"", "[abc]", "[^d-\\U0010ffff]", "\"\\u00e9\"", "[a\\u00e8-\\u00ea\\U0001f600]",
        "\" \"", "\"abcab\""};
    const uint64_t kind = random_.below(10);
    if (kind < 5) {
      const std::string part(kReading[random_.below(std::size(kReading))]);
      const std::string repetition = repeated();
      reads = reads || repetition.empty() || repetition == "+";
      return part + repetition;
    }
    if (kind < 7 && depth > 0) return "(" + choice(rule, depth - 1) + ")" + repeated();
    if (reads) return name(random_.below(rules_));
    if (rule + 1 < rules_) return name(rule + 1 + random_.below(rules_ - rule - 1)) + repeated();
    return "\"c\"";
  }

  std::string repeated() {
    static constexpr std::string_view kForms[] = {"",    "",      "",     "*",     "+",    "?",
                                                  "{2}", "{0,2}", "{2,}", "{1,3}", "{,4}", "{3,5}"};
    return std::string(kForms[random_.below(std::size(kForms))]);
  }

  Random& random_;
  uint64_t rules_;
};

TEST(GrammarMatcher, MasksAreThoseOfBruteForceOnRandomGrammars) {
  const auto trie = std::make_shared<const TokenTrie>(small_vocab());
  int accepted = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    Random random(seed);
    const std::string source = RandomGrammar(random).source();
    try {
      const Grammar grammar = parse_gbnf(source);
      ++accepted;
      check_walks(grammar, trie, random, 2, 7, source);
    } catch (const Error& error) {
      const std::string message = error.what();
      // Rules without end; too ambiguous never happens to texts this short.
      ASSERT_NE(message.find("no text fits"), std::string::npos) << source << message;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 60);
}

TEST(GrammarMatcher, MembersInAnyOrderAreThoseOfBruteForce) {
  const auto trie = std::make_shared<const TokenTrie>(small_vocab());
  static constexpr std::string_view kTexts[] = {"a", "ab", "b", "bb", "c"};
  int accepted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    GrammarBuilder builder;
    const RuleId root = builder.declare("root", "test");
    std::vector<GrammarBuilder::Member> members;
    for (const std::string_view text : kTexts) {
      if (random.below(4) == 0) continue;
      members.push_back({builder.literal(text), random.below(3) == 0, random.below(3) > 0});
    }
    const auto min = static_cast<uint32_t>(random.below(3));
    const uint32_t max = random.below(2) == 0 ? kUnbounded : static_cast<uint32_t>(random.below(4));
    const ExpressionId all = builder.permutation(members, builder.literal(","), min, max);
    builder.define(root, builder.sequence({all, builder.literal("!")}));
    try {
      const Grammar grammar = builder.finish(root);
      ++accepted;
      check_walks(grammar, trie, random, 3, 9, fmt::format("members of seed {}", seed));
    } catch (const Error& error) {
      ASSERT_NE(std::string(error.what()).find("no text fits"), std::string::npos) << error.what();
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 30);
}

// Every byte that can follow is also a token, so what is allowed here is what can be read.
void accept_text(GrammarMatcher& matcher, const Vocab& vocab, std::string_view text) {
  for (const char byte : text) matcher.accept(vocab.byte_token(static_cast<uint8_t>(byte)));
}

TEST(GrammarMatcher, JsonMasksOfTheDemoVocabularyAreThoseOfBruteForce) {
  const auto trie = std::make_shared<const TokenTrie>(text::test::demo_vocab());
  // The naive recogniser tries every code point of a class, so these are small.
  const std::string source = R"gbnf(
root ::= "{" pair ("," " "? pair){0,2} "}"
pair ::= string ":" " "? (string | number | "[" (number ("," number)*)? "]")
string ::= "\"" [ -!#-[a-z]* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,4}) ("." [0-9]{1,3})?
)gbnf";
  Random random(3);
  check_walks(parse_gbnf(source), trie, random, 1, 16, source);
}

TEST(GrammarMatcher, StopsAreAllowedExactlyWhereTheTextIsComplete) {
  const auto vocab = small_vocab();
  const auto grammar = compile(parse_gbnf("root ::= \"a\" \"b\"?"), vocab);
  GrammarMatcher matcher(grammar);
  EXPECT_FALSE(matcher.can_end());
  EXPECT_FALSE(matcher.must_end());
  for (const TokenId stop : vocab->stops()) {
    EXPECT_FALSE(matcher.allowed().allows(stop));
    EXPECT_THROW(matcher.accept(stop), std::logic_error);
  }
  accept_text(matcher, *vocab, "a");
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(matcher.must_end());
  accept_text(matcher, *vocab, "b");
  EXPECT_TRUE(matcher.must_end());
  EXPECT_EQ(matcher.allowed().count(), vocab->stops().size());
  matcher.accept(vocab->eos());
  EXPECT_TRUE(matcher.finished());
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.allowed().empty());
  EXPECT_THROW(matcher.accept(vocab->eos()), std::logic_error);
}

TEST(GrammarMatcher, OnlyPlainTokensSpellText) {
  const auto vocab = small_vocab();
  GrammarMatcher matcher(compile(parse_gbnf("root ::= .*"), vocab));
  const TokenMask& mask = matcher.allowed();
  for (size_t i = 0; i < vocab->size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const TokenType type = vocab->type(token);
    if (vocab->is_stop(token)) {
      EXPECT_TRUE(mask.allows(token));
    } else if (type != TokenType::kNormal && type != TokenType::kByte) {
      EXPECT_FALSE(mask.allows(token)) << vocab->text(token);
    } else if (type == TokenType::kNormal && vocab->text(token) != "a\xc3") {
      EXPECT_TRUE(mask.allows(token)) << vocab->text(token);
    }
  }
  EXPECT_TRUE(mask.allows(*vocab->find("a\xc3")));  // the start of a character
  EXPECT_TRUE(mask.allows(vocab->byte_token(0xe2)));
  EXPECT_FALSE(mask.allows(vocab->byte_token(0x80)));
  EXPECT_THROW(matcher.accept(vocab->byte_token(0xff)), std::logic_error);
  EXPECT_THROW(matcher.accept(-1), std::logic_error);
  EXPECT_THROW(matcher.accept(static_cast<TokenId>(vocab->size())), std::logic_error);
  EXPECT_THROW(matcher.accept(vocab->bos()), std::logic_error);
}

TEST(GrammarMatcher, AByteThatNoTokenSpellsIsSaidAtOnce) {
  text::test::VocabBuilder builder;
  const auto byte = static_cast<size_t>(builder.id("<0x7A>"));
  (*builder.types)[byte] = static_cast<int32_t>(TokenType::kUnused);
  const auto vocab = builder.build();
  EXPECT_NO_THROW(compile(parse_gbnf("root ::= [a-y]"), vocab));
  try {
    compile(parse_gbnf("root ::= [a-z]"), vocab);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("0x7A"), std::string::npos) << error.what();
  }
}

// What a count allows does not depend on how large it is, up to where a token could reach its bounds.
TEST(GrammarMatcher, CountsAreExactHoweverLarge) {
  const auto vocab = small_vocab();
  for (const auto& [min, max] : {std::pair(0, 70), std::pair(50, 50), std::pair(30, 64)}) {
    GrammarMatcher matcher(compile(parse_gbnf(fmt::format("root ::= ([ab] \"c\"?){{{},{}}} \"!\"", min, max)), vocab));
    for (int count = 0; count <= max; ++count) {
      const TokenMask& mask = matcher.allowed();
      ASSERT_EQ(mask.allows(vocab->byte_token('!')), count >= min) << count;
      ASSERT_EQ(mask.allows(*vocab->find("a")), count < max) << count;
      ASSERT_EQ(mask.allows(*vocab->find("aaa")), count + 3 <= max) << count;
      ASSERT_EQ(mask.allows(*vocab->find("abab")), count + 4 <= max) << count;
      ASSERT_EQ(mask.allows(*vocab->find("abcabc")), count + 4 <= max) << count;
      if (count < max) accept_text(matcher, *vocab, "a");
    }
    accept_text(matcher, *vocab, "!");
    EXPECT_TRUE(matcher.must_end());
  }
}

TEST(GrammarMatcher, CopiesAreIndependent) {
  const auto vocab = small_vocab();
  GrammarMatcher matcher(compile(parse_gbnf("root ::= (\"(\" root \")\") | [ab]{2,3}"), vocab));
  accept_text(matcher, *vocab, "((a");
  GrammarMatcher copy(matcher);
  EXPECT_EQ(copy.allowed(), matcher.allowed());
  accept_text(copy, *vocab, "b))");
  EXPECT_TRUE(copy.must_end());
  EXPECT_FALSE(matcher.can_end());
  copy = matcher;
  EXPECT_EQ(copy.allowed(), matcher.allowed());
}

// Memory is bounded by starting tables anew, which must not change anything.
TEST(GrammarMatcher, LongOutputsDeepNestingAndManyStates) {
  const auto vocab = small_vocab();
  GrammarMatcher matcher(compile(parse_gbnf("root ::= \"(\" root \")\" | [ab]{0,900000}"), vocab));
  constexpr int kDepth = 30000;
  for (int i = 0; i < kDepth; ++i) accept_text(matcher, *vocab, "(");
  for (int i = 0; i < 400000; ++i) accept_text(matcher, *vocab, "a");
  for (int i = 0; i < kDepth; ++i) {
    ASSERT_FALSE(matcher.can_end());
    accept_text(matcher, *vocab, ")");
  }
  EXPECT_TRUE(matcher.must_end());
}

// Not exponential: all readings of the text so far share what they have in common.
TEST(GrammarMatcher, AmbiguityIsBounded) {
  const auto vocab = small_vocab();
  const std::vector<std::string> sources = {
      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
      "root ::= s*\ns ::= \"a\" | \"a\" s | \"a\" s s",
      "root ::= (\"a\" | \"a\" \"a\" | [ab]+)*",
      "root ::= (((\"a\"{0,50}){0,50}){0,50}){0,50}",
  };
  for (const std::string& source : sources) {
    GrammarMatcher matcher(compile(parse_gbnf(source), vocab));
    try {
      for (int i = 0; i < 60; ++i) {
        ASSERT_FALSE(matcher.allowed().empty());
        accept_text(matcher, *vocab, "a");
      }
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("too ambiguous"), std::string::npos) << error.what();
    }
  }
  GrammarMatcher first(compile(parse_gbnf(sources[0]), vocab));
  accept_text(first, *vocab, std::string(60, 'a') + std::string(30, 'b') + std::string(30, 'c'));
  EXPECT_TRUE(first.must_end());
  GrammarMatcher poor(compile(parse_gbnf("root ::= [a-e]* \"!\""), vocab), 10);
  EXPECT_THROW(poor.allowed(), Error);
}

TEST(GrammarMatcher, OneGrammarServesManyThreads) {
  const auto vocab = small_vocab();
  const auto grammar = compile(parse_gbnf("root ::= (\"a\" [bc]* | \"b\" root){1,9} \"!\""), vocab);
  const auto outputs = [&](uint64_t seed) {
    Random random(seed);
    std::vector<TokenId> tokens;
    for (int output = 0; output < 20; ++output) {
      GrammarMatcher matcher(grammar);
      for (int i = 0; i < 30 && !matcher.finished(); ++i) {
        tokens.push_back(pick(random, matcher.allowed()));
        matcher.accept(tokens.back());
      }
    }
    return tokens;
  };
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { results[i] = outputs(i / 2); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[2], results[3]);
  EXPECT_EQ(results[0], outputs(0));
}

TEST(TokenMask, IsASetOfTokens) {
  TokenMask mask(130);
  EXPECT_TRUE(mask.empty());
  for (const TokenId token : {0, 63, 64, 129}) mask.set(token);
  EXPECT_EQ(mask.count(), 4u);
  mask.clear(63);
  std::vector<TokenId> tokens;
  mask.for_each([&](TokenId token) { tokens.push_back(token); });
  EXPECT_EQ(tokens, (std::vector<TokenId>{0, 64, 129}));
  EXPECT_TRUE(mask.allows(129));
  EXPECT_FALSE(mask.allows(63));
  EXPECT_FALSE(mask.allows(130));
  EXPECT_FALSE(mask.allows(-1));
  EXPECT_EQ(mask.size(), 130u);
}

}  // namespace
}  // namespace carat::text::grammar
