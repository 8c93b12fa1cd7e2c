#include "text/grammar/schema/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
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
        grammar_from_json_schema(each.schema);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::kBadArgument));
        EXPECT_NE(std::string(error.what()).find(each.error), std::string::npos) << error.what();
      }
      continue;
    }
    ++accepted;
    const auto grammar = compile(grammar_from_json_schema(each.schema), demo_trie());
    for (const std::string& text : each.valid) EXPECT_TRUE(accepts(grammar, text)) << text;
    for (const std::string& text : each.invalid) EXPECT_FALSE(accepts(grammar, text)) << text;
  }
  EXPECT_GE(accepted, 60u);
  EXPECT_GE(hostile, 20u);
}

// That it is valid, too, is what the peer test lets ajv judge.
TEST(JsonSchema, EveryOutputIsJson) {
  const Tokenizer tokenizer(text::test::demo_vocab());
  for (const test::SchemaCase& each : test::schema_cases()) {
    if (!each.error.empty()) continue;
    SCOPED_TRACE(each.name);
    const auto grammar = compile(grammar_from_json_schema(each.schema), demo_trie());
    Random random(7);
    std::vector<std::vector<TokenId>> examples;
    for (const std::string& text : each.valid) examples.push_back(tokenizer.encode(text));
    const auto outputs = test::random_outputs(random, grammar, examples, 4);
    EXPECT_EQ(outputs.size(), 4u);
    for (const std::string& text : outputs) EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

}  // namespace
}  // namespace carat::text::grammar
