#include "text/value.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/value_json.h"

namespace carat::text {
namespace {

Value parsed(std::string_view json) { return parse_json(json, false, "test"); }

TEST(Value, JsonKeepsOrderAndNumbers) {
  for (const char* json : {R"({"b":1,"a":[2.5,-3,1e+20,true,null],"":{"\"":"\u65e5\n"}})", "[]", "{}", "0",
                           "123456789012345678901234567890", "-9223372036854775808", "18446744073709551615", "\"\""}) {
    EXPECT_EQ(to_compact_json(parsed(json)),
              std::string_view(json).find("\\u65e5") == std::string_view::npos
                  ? std::string(json)
                  : "{\"b\":1,\"a\":[2.5,-3,1e+20,true,null],\"\":{\"\\\"\":\"\u65e5\\n\"}}");
  }
}

TEST(Value, JsonStyles) {
  const Value value = parsed(R"({"b":[1,{}],"a":"\u00e9\ud83d\ude42"})");
  EXPECT_EQ(to_json(value), "{\"b\": [1, {}], \"a\": \"\u00e9\U0001f642\"}");
  EXPECT_EQ(to_json(value, {.indent = 2, .item_separator = ",", .ensure_ascii = true, .sort_keys = true}),
            "{\n  \"a\": \"\\u00e9\\ud83d\\ude42\",\n  \"b\": [\n    1,\n    {}\n  ]\n}");
  std::string text;
  append_json_string("\x01\x7f\xff/", false, text);
  EXPECT_EQ(text, "\"\\u0001\x7f\ufffd/\"");
}

TEST(Value, BadJsonIsAnErrorThatNamesIt) {
  for (const char* json : {"", "{", "[1,]", "nul", "{\"a\" 1}", "1 2", "\"\xff\"", "1e999"}) {
    try {
      parsed(json);
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("test: no valid JSON")) << error.what();
    }
  }
  EXPECT_NO_THROW(parsed(std::string(64, '[') + std::string(64, ']')));
  EXPECT_THROW(parsed(std::string(65, '[') + std::string(65, ']')), Error);
  EXPECT_THROW(parsed(std::string(1'000'000, '[')), Error);
}

TEST(Value, NumbersLookAsInPython) {
  EXPECT_EQ(python_float(0.1), "0.1");
  EXPECT_EQ(python_float(2.0), "2.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1.0 / 3.0), "0.3333333333333333");
}

TEST(Value, KeysAreUniqueAndKeepTheirPlace) {
  EXPECT_EQ(to_compact_json(parsed(R"({"a":1,"b":2,"a":3})")), R"({"a":3,"b":2})");
}

}  // namespace
}  // namespace carat::text
