#include "text/tools/tool_call_parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "support/random.h"
#include "text/tools/tool_syntax.h"
#include "text/value_json.h"

namespace carat::text {
namespace {

// The text of a call with the delimiter as people write it.
std::string with_delimiters(std::string text) {
  constexpr std::string_view kQuote = "<|\"|>";
  for (size_t at; (at = text.find(kQuote)) != std::string::npos;) text.replace(at, kQuote.size(), 1, kStringDelimiter);
  return text;
}

std::string arguments_of(const std::string& text) {
  const ParsedCalls parsed = parse_tool_calls(with_delimiters(text));
  EXPECT_EQ(parsed.problem, "") << text;
  return parsed.calls.empty() ? "" : parsed.calls[0].arguments;
}

std::string problem_of(const std::string& text) {
  const ParsedCalls parsed = parse_tool_calls(with_delimiters(text));
  EXPECT_TRUE(parsed.calls.empty()) << text;
  return parsed.problem;
}

TEST(ToolCallParser, ConvertsExactCallsVerbatim) {
  EXPECT_EQ(arguments_of(R"(call:f{a:1.50,b:<|"|>x"y\n<|"|>,c:[true,null,{d:-1e5}]})"),
            R"({"a":1.50,"b":"x\"y\\n","c":[true,null,{"d":-1e5}]})");
  EXPECT_EQ(arguments_of("call:f{}"), "{}");
  EXPECT_EQ(arguments_of("call:f"), "{}");
  const ParsedCalls parsed = parse_tool_calls("call:server/tool-2.x:y{}");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].name, "server/tool-2.x:y");
}

TEST(ToolCallParser, ANumberThatNoReaderTakesIsText) {
  const std::string digits(400, '4');
  EXPECT_EQ(arguments_of("call:f{a:1e999,b:[-1E+400," + digits + "],c:1e-999}"),
            R"({"a":"1e999","b":["-1E+400",")" + digits + R"("],"c":1e-999})");
}

TEST(ToolCallParser, SaysWhatIsWrong) {
  EXPECT_EQ(problem_of(""), "no name where call:NAME{...} should be");
  EXPECT_EQ(problem_of("call:"), "no name where call:NAME{...} should be");
  EXPECT_EQ(problem_of("call:f]"), "no { after the name of the tool");
  EXPECT_EQ(problem_of("hello"), "no { after the name of the tool");
  EXPECT_EQ(problem_of("call:f{a:1} thanks"), "something other than a call after a call");
  EXPECT_EQ(problem_of("call:f{Paris}"), "no value for the argument \"Paris\"");
  EXPECT_EQ(problem_of("call:f{:1}"), "an argument without a name");
  EXPECT_EQ(problem_of("call:f{a:1]}"), "a ] that closes nothing");
  EXPECT_EQ(problem_of(R"({"arguments": {}})"), "an object without a name of a tool");
  EXPECT_EQ(problem_of(R"({"name": "f", "arguments": [1]})"), "arguments that are no object");
  EXPECT_EQ(problem_of("call:" + std::string(300, 'f') + "{}"), "the name of the tool is too long");
  std::string deep = "call:f{a:";
  for (int i = 0; i < 100; ++i) deep += "[";
  EXPECT_EQ(problem_of(deep), "the arguments nest too deeply");
  // One bad call spoils the block: what is left of it might not be what the model meant.
  EXPECT_EQ(problem_of("call:f{a:1}call:g{b}"), "no value for the argument \"b\"");
}

TEST(ToolCallParser, OfTwoEqualKeysTheLastCounts) {
  EXPECT_EQ(arguments_of("call:f{a:1,b:2,a:3}"), R"({"a":3,"b":2})");
}

TEST(ToolCallParser, EscapesOfQuotedStrings) {
  EXPECT_EQ(arguments_of(R"(call:f{a:"\u00e9\ud83d\ude42 \/ \q \ud83d x"})"),
            "{\"a\":\"\u00e9\U0001f642 / \\\\q \\\\ud83d x\"}");
  EXPECT_EQ(arguments_of(R"(call:f{path:"C:\dir"})"), R"({"path":"C:\\dir"})");
  EXPECT_EQ(arguments_of(R"(call:f{a:"x)"), R"({"a":"x"})");
}

Value random_value(carat::test::Random& random, int depth) {
  constexpr std::array<std::string_view, 8> kTexts = {"",       "Paris",        "a,b:c}", "]{[", "\"quoted\" 'text'",
                                                      "l1\nl2", "\u65e5\u672c", "\\n x"};
  switch (random.below(depth > 2 ? 5 : 7)) {
    case 0:
      return Value::none();
    case 1:
      return Value::boolean(random.below(2) == 0);
    case 2:
      return Value::integer(static_cast<int64_t>(random.below(2000)) - 1000);
    case 3:
      return Value::real(static_cast<double>(random.below(1000)) / 8 + 0.0625);
    case 4:
      return Value::string(kTexts[random.below(kTexts.size())], false);
    case 5: {
      std::vector<Value> items;
      for (uint64_t i = random.below(4); i > 0; --i) items.push_back(random_value(random, depth + 1));
      return Value::list(std::move(items));
    }
    default: {
      ValueMap map;
      constexpr std::array<std::string_view, 5> kKeys = {"a", "B", "key_2", "with space", "\u00e9"};
      for (uint64_t i = random.below(4); i > 0; --i) {
        map.set(MarkedText(kKeys[random.below(kKeys.size())], false), random_value(random, depth + 1));
      }
      return Value::map(std::move(map));
    }
  }
}

// What the renderer writes into a prompt is the exact grammar: reading it gives the arguments back.
TEST(ToolCallParser, ReadsWhatTheRendererWrites) {
  carat::test::Random random(5);
  for (int i = 0; i < 3000; ++i) {
    Value arguments;
    do {
      arguments = random_value(random, 0);
    } while (!arguments.is_map());
    MarkedText text;
    ToolSyntax(TemplateRevision::kCanonical, text).call("f", arguments);
    std::string body = text.text();
    body = body.substr(12, body.size() - 24);  // without <|tool_call> and <tool_call|>
    const std::string json = arguments_of(body);
    EXPECT_EQ(nlohmann::json::parse(json), nlohmann::json::parse(to_json(arguments))) << body;
  }
}

// However broken, an answer in linear time, and what is accepted is JSON.
TEST(ToolCallParser, AnyTextIsReadOrRefusedQuickly) {
  carat::test::Random random(6);
  constexpr std::string_view kAlphabet = "{}[]():=,\"'\\ \nab1-.call\xff\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string text = random.below(2) == 0 ? "call:f{" : "";
    for (uint64_t n = random.below(40); n > 0; --n) text += kAlphabet[random.below(kAlphabet.size())];
    const ParsedCalls parsed = parse_tool_calls(text);
    EXPECT_EQ(parsed.calls.empty(), !parsed.problem.empty()) << text;
    for (const ParsedCall& call : parsed.calls) {
      EXPECT_TRUE(nlohmann::json::parse(call.arguments).is_object()) << text;
      EXPECT_FALSE(call.name.empty());
    }
  }
}

TEST(ToolCallParser, LongTextsTakeLinearTime) {
  const auto seconds = [](const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    parse_tool_calls(text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const char* unit :
       {")", "(", ",", "'", "\"", "\xff", "a:", "a,", "{", "[1,", "\xff ", ") ", "a=\xff", "'x' y"}) {
    std::string text = "call:f{a:";
    while (text.size() < 500'000) text += unit;
    EXPECT_LT(seconds(text + "x"), 2.0) << unit;
    EXPECT_LT(seconds(text), 2.0) << unit;
  }
}

}  // namespace
}  // namespace carat::text
