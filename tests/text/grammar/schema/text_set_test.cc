#include "text/grammar/schema/text_set.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "support/random.h"
#include "text/grammar/schema/schema_resources.h"

namespace carat::text::grammar {
namespace {

using carat::test::Random;

std::string random_text(Random& random) {
  std::string text;
  for (uint64_t left = random.below(7); left > 0; --left) text += "ab1-"[random.below(4)];
  return text;
}

TEST(TextSet, PatternsMatchWhatStandardRegexesMatch) {
  const std::vector<std::string> patterns = {"a",
                                             "^a",
                                             "b$",
                                             "^[ab]+$",
                                             "a.b",
                                             "(^a|b$)",
                                             "^(a|ab)*$",
                                             "^$",
                                             "",
                                             "^a{2,3}b?$",
                                             "\\d-\\d",
                                             "^(?=.*1)[ab1]{2,4}$",
                                             "^(?!ab)a.*",
                                             "a|b1",
                                             "^((a|b)1?)+$",
                                             "[^a-z]",
                                             "\\w{3}",
                                             "^(?:a*b){2}$",
                                             "-(a|$)",
                                             "^a(b|^c|$)",
                                             "a+?b",
                                             "^[\\w-]{3}\\b?$"};
  Random random(1);
  for (const std::string& pattern : patterns) {
    if (pattern.find("\\b") != std::string::npos) {
      EXPECT_THROW(TextSet::matching(pattern, "test"), Error);
      continue;
    }
    const TextSet set = TextSet::matching(pattern, "test");
    const std::regex reference(pattern);
    for (int i = 0; i < 400; ++i) {
      const std::string text = random_text(random);
      EXPECT_EQ(set.contains(text), std::regex_search(text, reference)) << pattern << " on \"" << text << "\"";
    }
  }
}

TEST(TextSet, OperationsAreThoseOfSets) {
  const TextSet a = TextSet::matching("^[ab]*$", "test"), b = TextSet::matching("b", "test");
  const TextSet some = TextSet::of_words(std::vector<std::string>{"", "ab", "b1"});
  const TextSet length = TextSet::of_length(2, 3, "test");
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(random);
    const bool in_a = a.contains(text), in_b = b.contains(text);
    EXPECT_EQ(a.and_with(b, "test").contains(text), in_a && in_b) << text;
    EXPECT_EQ(a.and_not(b, "test").contains(text), in_a && !in_b) << text;
    EXPECT_EQ(some.or_with(b, "test").contains(text), some.contains(text) || in_b) << text;
    EXPECT_EQ(length.contains(text), text.size() == 2 || text.size() == 3) << text;
    EXPECT_TRUE(TextSet::everything().contains(text));
  }
  EXPECT_TRUE(a.and_not(TextSet::everything(), "test").empty());
  EXPECT_FALSE(a.is_finite());
  EXPECT_EQ(a.and_with(length, "test").words(20)->size(), 4u + 8u);
  EXPECT_EQ(a.and_with(length, "test").words(3), std::nullopt);
  EXPECT_TRUE(TextSet::of_length(3, 3, "test").contains("\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"));
}

TEST(TextSet, TooMuchIsAnErrorWithItsPlace) {
  for (const char* pattern : {"(((a{30}){30}){30}){30}", "(a|b)*a.{30}"}) {
    try {
      TextSet::matching(pattern, "here");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("here"), std::string::npos) << error.what();
    }
  }
}

// RFC 3986, 5.4.
TEST(SchemaResources, ReferencesAreResolvedAsTheStandardSays) {
  const std::string base = "http://a/b/c/d;p?q";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"g:h", "g:h"},           {"g", "http://a/b/c/g"},   {"./g", "http://a/b/c/g"},       {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},     {"//g", "http://g"},       {"g#s", "http://a/b/c/g#s"},     {"..", "http://a/b/"},
      {"../g", "http://a/b/g"}, {"../../g", "http://a/g"}, {"g?y#s", "http://a/b/c/g?y#s"}, {".", "http://a/b/c/"},
  };
  for (const auto& [reference, expected] : cases) EXPECT_EQ(resolved_uri(base, reference), expected) << reference;
  EXPECT_EQ(resolved_uri("urn:x:y", "#a"), "urn:x:y#a");
  EXPECT_EQ(resolved_uri("", "a/b"), "a/b");
}

}  // namespace
}  // namespace carat::text::grammar
