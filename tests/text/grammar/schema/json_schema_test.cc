#include "text/grammar/schema/json_schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "text/demo_vocab.h"
#include "text/grammar/matcher.h"
#include "text/grammar/random_walk.h"
#include "text/grammar/schema_cases.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::text::grammar {
namespace {

using carat::test::Random;

std::shared_ptr<const TokenTrie> demo_trie() {
  static const auto trie = std::make_shared<const TokenTrie>(text::test::demo_vocab());
  return trie;
}

// Whether the whole text is accepted, in the tokens a tokenizer makes of it.
bool accepts(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text) {
  const Tokenizer tokenizer(text::test::demo_vocab());
  GrammarMatcher matcher(grammar);
  for (const TokenId token : tokenizer.encode(text)) {
    if (!matcher.allowed().allows(token)) {
      EXPECT_THROW(matcher.accept(token), std::logic_error);
      return false;
    }
    matcher.accept(token);
  }
  return matcher.can_end();
}

TEST(JsonSchema, CasesComeOutAsTheFileSays) {
  size_t hostile = 0, accepted = 0;
  for (const test::SchemaCase& each : test::schema_cases()) {
    SCOPED_TRACE(each.name);
    hostile += each.hostile ? 1 : 0;
    if (!each.error.empty()) {
      try {
        grammar_from_json_schema(each.schema, each.style);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::kBadArgument));
        EXPECT_NE(std::string(error.what()).find(each.error), std::string::npos) << error.what();
      }
      continue;
    }
    ++accepted;
    const auto grammar = compile(grammar_from_json_schema(each.schema, each.style), demo_trie());
    for (const std::string& text : each.valid) {
      EXPECT_TRUE(accepts(grammar, text)) << text;
      EXPECT_EQ(json_schema_violation(each.schema, text), "") << text;
    }
    for (const std::string& text : each.invalid) {
      EXPECT_FALSE(accepts(grammar, text)) << text;
      if (each.style == JsonStyle::kFree) {
        EXPECT_NE(json_schema_violation(each.schema, text), "") << text;
      }
    }
  }
  EXPECT_GE(accepted, 60u);
  EXPECT_GE(hostile, 20u);
}

// What the peer test lets ajv judge, here by carat's own reading of schemas, which is not that of the grammar.
TEST(JsonSchema, EveryOutputIsValid) {
  const Tokenizer tokenizer(text::test::demo_vocab());
  for (const test::SchemaCase& each : test::schema_cases()) {
    if (!each.error.empty() || each.hostile) continue;
    SCOPED_TRACE(each.name);
    const auto grammar = compile(grammar_from_json_schema(each.schema, each.style), demo_trie());
    const auto ordered = compile(grammar_from_json_schema(each.schema, JsonStyle::kSchema), demo_trie());
    Random random(7);
    std::vector<std::vector<TokenId>> examples;
    for (const std::string& text : each.valid) examples.push_back(tokenizer.encode(text));
    const auto outputs = test::random_outputs(random, grammar, examples, 3);
    EXPECT_GE(outputs.size(), 1u);
    const auto more = test::random_outputs(random, ordered, {}, 1);
    for (const auto* texts : {&outputs, &more}) {
      for (const std::string& text : *texts) EXPECT_EQ(json_schema_violation(each.schema, text), "") << text;
    }
  }
}

// All ways to write some different ones of `items`, at least `least` of them.
std::set<std::string> texts_of_sets(const std::vector<std::string>& items, size_t least) {
  std::set<std::string> texts, grown = {"["};
  for (size_t count = 0; count <= items.size(); ++count) {
    std::set<std::string> next;
    for (const std::string& text : grown) {
      if (count >= least) texts.insert(text + "]");
      for (const std::string& item : items) {
        const auto written = nlohmann::json::parse(text + "]");
        if (std::find(written.begin(), written.end(), nlohmann::json::parse(item)) != written.end()) continue;
        for (const char* comma : {",", ", "}) next.insert(text + (count > 0 ? comma : "") + item);
      }
    }
    grown = std::move(next);
  }
  return texts;
}

// Masks under uniqueItems hold exactly the tokens that lead to a text which can be completed.
TEST(JsonSchema, RepetitionsAreNeverADeadEnd) {
  struct Case {
    std::string schema;
    std::vector<std::string> items;
    size_t least;
  };
  const std::vector<Case> cases = {
      {R"({"type":"array","items":{"enum":["a","ab","abc"]},"uniqueItems":true,"minItems":2})",
       {R"("a")", R"("ab")", R"("abc")"},
       2},
      {R"({"type":"array","items":{"enum":[1,12,-1,120]},"uniqueItems":true})", {"1", "12", "-1", "120"}, 0},
      {R"({"type":"array","items":{"enum":[[],[1],[1,2]]},"uniqueItems":true,"minItems":3})",
       {"[]", "[1]", "[1,2]", "[1, 2]"},
       3},
      {R"({"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true})", {"true", "false", "null"}, 0}};
  const auto& vocab = *text::test::demo_vocab();
  for (const Case& each : cases) {
    const auto grammar = compile(grammar_from_json_schema(each.schema), demo_trie());
    const auto texts = texts_of_sets(each.items, each.least);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed);
      GrammarMatcher matcher(grammar);
      std::string text;
      while (!matcher.finished()) {
        const TokenMask& mask = matcher.allowed();
        for (size_t i = 0; i < vocab.size(); ++i) {
          const auto token = static_cast<TokenId>(i);
          const std::string longer = text + std::string(demo_trie()->bytes(token));
          const auto next = texts.lower_bound(longer);
          const bool leads_on = longer.size() > text.size() && next != texts.end() && next->starts_with(longer);
          const bool ends = vocab.is_stop(token) && texts.contains(text);
          ASSERT_EQ(mask.allows(token), leads_on || ends)
              << each.schema << " after " << text << ": " << vocab.text(token);
        }
        const TokenId token = test::random_token(random, *demo_trie(), mask, false);
        matcher.accept(token);
        text += demo_trie()->bytes(token);
      }
    }
  }
}

}  // namespace
}  // namespace carat::text::grammar
