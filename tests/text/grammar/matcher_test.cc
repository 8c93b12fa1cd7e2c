#include "text/grammar/matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "support/random.h"
#include "text/demo_vocab.h"
#include "text/grammar/grammar.h"
#include "text/grammar/naive_recogniser.h"
#include "text/tokenizer.h"
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
  for (uint64_t seed = 0; seed < 200; ++seed) {
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
  EXPECT_GT(accepted, 150);
}

}  // namespace
}  // namespace carat::text::grammar
