#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/demo_vocab.h"
#include "text/grammar/matcher.h"
#include "text/grammar/random_walk.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema_cases.h"
#include "text/tools/tool_call_parser.h"

namespace carat::text::grammar {
namespace {

using carat::test::Random;
using Json = nlohmann::ordered_json;

std::shared_ptr<const TokenTrie> demo_trie() {
  static const auto trie = std::make_shared<const TokenTrie>(text::test::demo_vocab());
  return trie;
}

// Whatever the schema, arguments under it are read as the call they are.
TEST(ToolCallGrammar, ArgumentsUnderAnySchemaAreReadBack) {
  size_t schemas = 0, outputs = 0;
  for (const test::SchemaCase& each : test::schema_cases()) {
    if (!each.error.empty()) continue;
    SCOPED_TRACE(each.name);
    std::shared_ptr<const CompiledGrammar> grammar;
    try {
      grammar = compile(grammar_of_arguments(each.schema), demo_trie());
    } catch (const Error& error) {  // no object is valid, or names could come twice
      const std::string message = error.what();
      EXPECT_TRUE(message.find("no text fits") != std::string::npos ||
                  message.find("minProperties is more") != std::string::npos)
          << message;
      continue;
    }
    ++schemas;
    Random random(11);
    for (const std::string& text : test::random_outputs(random, grammar, {}, 4)) {
      ++outputs;
      const ParsedCalls parsed = parse_tool_calls("call:f" + text);
      ASSERT_TRUE(parsed.problem.empty()) << text << ": " << parsed.problem;
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_TRUE(Json::accept(parsed.calls[0].arguments)) << text;
    }
  }
  EXPECT_GE(schemas, 30u);
  EXPECT_GE(outputs, 100u);
}

}  // namespace
}  // namespace carat::text::grammar
