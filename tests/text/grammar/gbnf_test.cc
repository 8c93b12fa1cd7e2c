#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/demo_vocab.h"
#include "text/grammar/grammar.h"
#include "text/grammar/limits.h"
#include "text/grammar/matcher.h"
#include "text/vocab_builder.h"

namespace carat::text::grammar {
namespace {

// Whether the grammar accepts the whole text, byte by byte.
bool accepts(const std::string& source, std::string_view text) {
  const auto grammar = parse_gbnf(source);
  const auto compiled = compile(grammar, text::test::demo_vocab());
  GrammarMatcher matcher(compiled);
  for (const char byte : text) {
    const TokenId token = text::test::demo_vocab()->byte_token(static_cast<uint8_t>(byte));
    if (!matcher.allowed().allows(token)) return false;
    matcher.accept(token);
  }
  return matcher.can_end();
}

std::string error_of(const std::string& source) {
  try {
    parse_gbnf(source);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::kBadArgument)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << source.substr(0, 200);
  return "";
}

TEST(Gbnf, ReadsEveryForm) {
  struct Case {
    std::string source;
    std::vector<std::string> accepted, refused;
  };
  const std::vector<Case> cases = {
      {R"(root ::= "abc")", {"abc"}, {"", "ab", "abcd"}},
      {R"(root ::= "")", {""}, {"a"}},
      {R"(root ::=)", {""}, {"a"}},
      {R"(root ::= "a" "b" | "c")", {"ab", "c"}, {"a", "abc"}},
      {R"(root ::= "\n\t\r\"\\\x41\u00e9\U0001f600")", {"\n\t\r\"\\A\u00e9\U0001f600"}, {"n"}},
      {R"(root ::= [abx-z0-9_-]+)", {"a", "x0y-_"}, {"", "c"}},
      {R"(root ::= [^a-z\n\]])", {"A", "\u00e9", "\U0001f600", "["}, {"b", "\n", "]", "AB"}},
      {R"(root ::= [\u0400-\u04ff]{2})", {"\u0434\u0430"}, {"\u0434", "da"}},
      {R"(root ::= .)", {"a", "\n", "\u65e5"}, {"", "ab", "\xc3"}},
      {R"(root ::= "a"* "b"+ "c"?)", {"b", "aabbc"}, {"", "a", "bcc"}},
      {R"(root ::= "a"{3})", {"aaa"}, {"aa", "aaaa"}},
      {R"(root ::= "a"{2,})", {"aa", "aaaaa"}, {"a"}},
      {R"(root ::= "a"{1,3})", {"a", "aaa"}, {"", "aaaa"}},
      {R"(root ::= "a"{,2})", {"", "aa"}, {"aaa"}},
      {R"(root ::= "a"{0})", {""}, {"a"}},
      {R"(root ::= ("a" | "b"){2} ("c" "d")?)", {"ab", "bacd"}, {"a", "abc"}},
      {R"(root ::= ("a"{2} "b"){2})", {"aabaab"}, {"aab"}},
      {"# one\nroot ::= (  # two\n  \"a\" |\n  other\n)\n\nother ::= # three\n  \"b\" other-2\nother-2 ::= \"c\"\n",
       {"a", "bc"},
       {"b"}},
      {"root ::= \"a\"\n  | \"b\"\n", {"a", "b"}, {"c"}},
      {"root ::= \"a\" |\r\nb\r\nb ::= \"x\"\r\n", {"a", "x"}, {""}},
      {R"g(root ::= "(" root ")" | "x")g", {"x", "((x))"}, {"((x)", "()"}},
      {R"(root ::= ("")* "a" ("" | "b")*)", {"a", "abb"}, {"b"}},
      {"root ::= \"a\" tail | dead\ntail ::= \"b\" tail | \"\"\ndead ::= \"c\" dead\n", {"a", "abb"}, {"c"}},
      {R"(root ::= "a"{1000000})", {}, {"aaa"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.source);
    for (const std::string& text : each.accepted) EXPECT_TRUE(accepts(each.source, text)) << text;
    for (const std::string& text : each.refused) EXPECT_FALSE(accepts(each.source, text)) << text;
  }
}

TEST(Gbnf, ErrorsNameThePlaceAndTheProblem) {
  const std::string deep = std::string(300, '(') + "\"a\"" + std::string(300, ')');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "line 1, column 1: there is no rule \"root\""},
      {"start ::= \"a\"", "there is no rule \"root\""},
      {"root ::= \"a\"\n  \nroot ::= \"b\"", "line 3, column 1: the rule \"root\" is defined twice"},
      {"root ::= \"a\" other", "line 1, column 14: there is no rule \"other\""},
      {"root ::= \"a", "line 1, column 10: this literal is never closed"},
      {"root ::= [a", "line 1, column 10: this character class is never closed"},
      {"root ::= [z-a]", "the end of this range comes before its start"},
      {"root ::= []", "has no characters"},
      {"root ::= (\"a\"", "line 1, column 10: this ( is never closed"},
      {"root ::= \"a\")", "line 1, column 13: ')' does not belong here"},
      {"root ::= * \"a\"", "'*' does not belong here"},
      {"root := \"a\"", "line 1, column 6: expected ::="},
      {"::= \"a\"", "expected the name of a rule"},
      {"root ::= \"\\q\"", "line 1, column 11: unknown escape"},
      {"root ::= \"\\x4\"", "needs 2 hexadecimal digits"},
      {"root ::= \"\\ud800\"", "there is no character U+D800"},
      {"root ::= \"\\U00110000\"", "there is no character U+110000"},
      {"root ::= \"\xff\"", "the byte 0xff is no valid UTF-8"},
      {"root ::= \"a\"{}", "expected {n}"},
      {"root ::= \"a\"{,}", "expected {n}"},
      {"root ::= \"a\"{3,2}", "3 to 2 times is never"},
      {"root ::= \"a\"{99999999999999999999}", "repeated more than 1000000 times"},
      {"root ::= <[12]>", "tokens by name or number are not supported"},
      {"root ::= root \"a\" | \"b\"", "line 1, column 1: rule \"root\" can come back to itself"},
      {"root ::= a\na ::= b \"x\"\nb ::= \"\" a", "left recursion"},
      {"root ::= (\"a\"? root)* \"b\"", "left recursion"},
      {"root ::= (root \"a\"){2,3}", "left recursion"},
      {"root ::= \"a\" root", "no text fits"},
      {"root ::= " + deep, "groups nest more than 200 deep"},
      {"root ::= \"a\"" + std::string(300, '*'), "repeated in more than 200 ways"},
      {std::string(kMaxSourceBytes + 1, '#'), "more than the 1048576 it may have"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string message = error_of(source);
    EXPECT_NE(message.find(expected), std::string::npos) << source.substr(0, 200) << "\n" << message;
  }
}

TEST(Gbnf, LargeGrammarsAreReadInBoundedTime) {
  std::string chain, words = "root ::= \"a\"", names;
  for (int i = 0; i < 20000; ++i) {
    chain += fmt::format("{} ::= {} \"x\"\n", i == 0 ? "root" : fmt::format("r{}", i), fmt::format("r{}", i + 1));
    words += fmt::format(" | \"word {}\"", i);
  }
  chain += "r20000 ::= \"y\"\n";
  parse_gbnf(chain);
  EXPECT_TRUE(accepts(words, "word 19999"));
  EXPECT_FALSE(accepts(words, "word 20000"));
  std::string prefixes = "root ::= \"a\"";
  for (int i = 2; i < 1300; ++i) prefixes += fmt::format(" | \"{}\"", std::string(static_cast<size_t>(i), 'a'));
  EXPECT_TRUE(accepts(prefixes, std::string(1299, 'a')));
  EXPECT_FALSE(accepts(prefixes, std::string(1300, 'a')));
}

}  // namespace
}  // namespace carat::text::grammar
