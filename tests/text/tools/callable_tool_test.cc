#include "text/tools/callable_tool.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "text/chat/conversation_json.h"
#include "text/demo_vocab.h"
#include "text/grammar/matcher.h"
#include "text/grammar/random_walk.h"
#include "text/grammar/schema_validity.h"
#include "text/tools/tool_call_parser.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

using carat::test::Random;
using Json = nlohmann::ordered_json;

std::shared_ptr<const grammar::TokenTrie> demo_trie() {
  static const auto trie = std::make_shared<const grammar::TokenTrie>(test::demo_vocab());
  return trie;
}

// Tools as coding agents and servers of the Model Context Protocol declare them.
std::vector<Tool> real_tools() {
  const std::string path = (carat::test::source_directory() / "tests/text/tool_schemas.json").string();
  std::vector<Tool> tools;
  for (const Json& tool : Json::parse(carat::test::read_text(path))) {
    tools.push_back({tool.at("function").at("name"), tool.dump()});
  }
  return tools;
}

Json parameters_of(const Tool& tool) { return Json::parse(tool.json).at("function").at("parameters"); }

Tool tool_of(const std::string& name, const std::string& parameters) {
  return {name, R"({"type":"function","function":{"name":")" + name + R"(","parameters":)" + parameters + "}}"};
}

// Reads arguments exactly as docs/gemma4.md 5.6 defines them, and nothing else.
class ExactReader {
 public:
  explicit ExactReader(std::string_view text) : text_(text) {}

  Json read() {
    Json json = value();
    EXPECT_EQ(at_, text_.size());
    return json;
  }

 private:
  char next() { return at_ < text_.size() ? text_[at_++] : '\0'; }
  bool take(char c) { return at_ < text_.size() && text_[at_] == c && ++at_; }
  std::string up_to(std::string_view ends) {
    const size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    return std::string(text_.substr(std::exchange(at_, end), end - at_));
  }
  std::string delimited() {
    std::string text = up_to("\xff");
    EXPECT_EQ(next(), kStringDelimiter);
    return text;
  }
  Json value() {
    if (take(kStringDelimiter)) return delimited();
    if (take('{')) return object();
    if (take('[')) return array();
    return Json::parse(up_to(",]}"));
  }
  Json object() {
    Json json = Json::object();
    while (!take('}')) {
      const bool has_comma = json.empty() || take(',');
      EXPECT_TRUE(has_comma);
      const std::string key = take(kStringDelimiter) ? delimited() : up_to(":");
      EXPECT_TRUE(take(':'));
      json[key] = value();
    }
    return json;
  }
  Json array() {
    Json json = Json::array();
    while (!take(']')) {
      const bool has_comma = json.empty() || take(',');
      EXPECT_TRUE(has_comma);
      json.push_back(value());
    }
    return json;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// What the grammar lets through is read back exactly, and is valid.
TEST(CallableTool, CallsOfRealToolsAreReadBackAndValid) {
  size_t enforced = 0, calls = 0;
  const auto tools = real_tools();
  ASSERT_GE(tools.size(), 20u);
  for (const Tool& tool : tools) {
    SCOPED_TRACE(tool.name);
    const CallableTool callable = callable_tool(tool, demo_trie());
    ASSERT_NE(callable.arguments, nullptr) << callable.problem;
    EXPECT_EQ(callable.name, tool.name);
    enforced += callable.problem.empty() ? 1 : 0;
    EXPECT_TRUE(callable.problem.empty() || callable.problem.find("#/") != std::string::npos) << callable.problem;
    Random random(5);
    for (const std::string& text : grammar::test::random_outputs(random, callable.arguments, {}, 25)) {
      ++calls;
      const ParsedCalls parsed = parse_tool_calls("call:" + tool.name + text);
      ASSERT_EQ(parsed.problem, "") << text;
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_EQ(parsed.calls[0].name, tool.name);
      const Json arguments = Json::parse(parsed.calls[0].arguments);
      EXPECT_EQ(arguments, ExactReader(text).read()) << text;
      if (callable.problem.empty()) {
        EXPECT_EQ(grammar::test::violation(parameters_of(tool), arguments), "") << parsed.calls[0].arguments;
      }
    }
  }
  EXPECT_GE(enforced, 21u);
  EXPECT_GE(calls, 400u);
}

TEST(CallableTool, WithoutParametersThereAreNoArguments) {
  for (const std::string parameters : {"null", R"({"type":"object","properties":{}})"}) {
    const CallableTool callable = callable_tool(tool_of("f", parameters), demo_trie());
    EXPECT_EQ(callable.problem, "");
    grammar::GrammarMatcher matcher(callable.arguments);
    for (const std::string_view bytes : {"{", "}"}) matcher.accept(*test::demo_vocab()->find(bytes));
    EXPECT_TRUE(matcher.must_end());
    Random random(1);
    for (const std::string& text : grammar::test::random_outputs(random, callable.arguments, {}, 5)) {
      EXPECT_EQ(text, "{}");
    }
  }
  // Who says that there may be any gets any.
  const CallableTool open =
      callable_tool(tool_of("f", R"({"type":"object","properties":{},"additionalProperties":true})"), demo_trie());
  grammar::GrammarMatcher matcher(open.arguments);
  matcher.accept(*test::demo_vocab()->find("{"));
  EXPECT_TRUE(matcher.allowed().allows(*test::demo_vocab()->find("a")));
}

TEST(CallableTool, AnUnenforceableSchemaLeavesAnyArgumentsAndSaysWhy) {
  const CallableTool callable = callable_tool(
      tool_of("f", R"({"type":"object","properties":{"a":{"$ref":"https://example.org/a.json"}}})"), demo_trie());
  EXPECT_NE(callable.problem.find("#/properties/a"), std::string::npos) << callable.problem;
  ASSERT_NE(callable.arguments, nullptr);
  Random random(3);
  size_t with_members = 0;
  for (const std::string& text : grammar::test::random_outputs(random, callable.arguments, {}, 20)) {
    const ParsedCalls parsed = parse_tool_calls("call:f" + text);
    ASSERT_EQ(parsed.problem, "") << text;
    with_members += parsed.calls.at(0).arguments == "{}" ? 0 : 1;
  }
  EXPECT_GT(with_members, 0u);
  EXPECT_NE(callable_tool(tool_of("f", R"({"type":"string"})"), demo_trie()).problem, "");
  EXPECT_NE(callable_tool({"f", "not JSON"}, demo_trie()).problem, "");
}

TEST(CallableTool, KnowsWhichNamesACallCanHave) {
  for (const std::string name : {"f", "mcp__a-b.c__d", "call", "call:f", "a/b"}) {
    const CallableTool callable = callable_tool(tool_of(name, "{}"), demo_trie());
    EXPECT_EQ(callable.problem, "") << name;
    const ParsedCalls parsed = parse_tool_calls("call:" + name + "{}");
    ASSERT_EQ(parsed.calls.size(), 1u) << name;
    EXPECT_EQ(parsed.calls[0].name, name);
  }
  for (const std::string name : {"", "two words", "a{b", "na\xc3\xafve"}) {
    const CallableTool callable = callable_tool(tool_of(name, "{}"), demo_trie());
    EXPECT_EQ(callable.arguments, nullptr) << name;
    EXPECT_NE(callable.problem, "") << name;
  }
  EXPECT_EQ(callable_tool(tool_of(std::string(300, 'f'), "{}"), demo_trie()).arguments, nullptr);
}

}  // namespace
}  // namespace carat::text
