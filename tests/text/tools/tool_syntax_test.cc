#include "text/tools/tool_syntax.h"

#include <gtest/gtest.h>

#include "text/value_json.h"

namespace carat::text {
namespace {

std::string declaration(std::string_view function, TemplateRevision revision = TemplateRevision::kCanonical) {
  MarkedText out;
  const std::string tool = R"({"type":"function","function":)" + std::string(function) + "}";
  ToolSyntax(revision, out).declaration(parse_json(tool, false, "tool"));
  return out.text();
}

// The property `p` of a function that has only that.
std::string property(std::string_view schema, TemplateRevision revision = TemplateRevision::kCanonical) {
  const std::string text = declaration(
      R"({"name":"f","parameters":{"type":"object","properties":{"p":)" + std::string(schema) + "}}}", revision);
  const std::string_view before = R"(<|tool>declaration:f{description:<|"|><|"|>,parameters:{properties:{p:{)";
  const std::string_view after = R"(}},type:<|"|>OBJECT<|"|>}}<tool|>)";
  EXPECT_TRUE(text.starts_with(before) && text.ends_with(after)) << text;
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

// The exact examples of docs/gemma4.md 5.4.
TEST(ToolSyntax, DeclaresTheExamplesOfTheSpecification) {
  EXPECT_EQ(
      declaration(R"({"name":"get_weather","description":"Get the weather","parameters":{"type":"object","properties":{
        "location":{"type":"string","description":"City name"},"days":{"type":"integer"},
        "unit":{"type":"string","enum":["c","f"]},"tags":{"type":"array","items":{"type":"string"}},
        "opts":{"type":"object","properties":{"verbose":{"type":"boolean","description":"x"}},"required":["verbose"]}},
        "required":["location"]}})"),
      R"(<|tool>declaration:get_weather{description:<|"|>Get the weather<|"|>,parameters:{properties:{days:{type:<|"|>INTEGER<|"|>},location:{description:<|"|>City name<|"|>,type:<|"|>STRING<|"|>},opts:{properties:{verbose:{description:<|"|>x<|"|>,type:<|"|>BOOLEAN<|"|>}},required:[<|"|>verbose<|"|>],type:<|"|>OBJECT<|"|>},tags:{items:{type:<|"|>STRING<|"|>},type:<|"|>ARRAY<|"|>},unit:{enum:[<|"|>c<|"|>,<|"|>f<|"|>],type:<|"|>STRING<|"|>}},required:[<|"|>location<|"|>],type:<|"|>OBJECT<|"|>}}<tool|>)");
  EXPECT_EQ(
      declaration(R"({"name":"now","description":"Current time","parameters":{"type":"object","properties":{}}})"),
      R"(<|tool>declaration:now{description:<|"|>Current time<|"|>,parameters:{type:<|"|>OBJECT<|"|>}}<tool|>)");
}

// Schemas that the peer's template engine cannot render; expected values from Python's Jinja.
TEST(ToolSyntax, OddSchemasAsTheOfficialTemplateShowsThem) {
  EXPECT_EQ(property(R"({"type":["string","null"]})"), R"(type:<|"|>['STRING', 'NULL']<|"|>)");
  EXPECT_EQ(property(R"({})"), R"(type:<|"|><|"|>)");
  EXPECT_EQ(property("true"), R"(type:<|"|><|"|>)");
  EXPECT_EQ(property(R"({"type":"object","additionalProperties":false})"),
            R"(properties:{additionalProperties:{type:<|"|><|"|>}},type:<|"|>OBJECT<|"|>)");
  EXPECT_EQ(property(R"({"type":"object","properties":{"type":{"type":"string"}}})"),
            R"(properties:{type:{type:<|"|>STRING<|"|>}},type:<|"|>OBJECT<|"|>)");
  EXPECT_EQ(
      property(R"({"type":"array","items":{"type":["integer","null"],"x":null,"y":{"Z":1,"a":[true]}}})"),
      R"(items:{type:[<|"|>INTEGER<|"|>,<|"|>NULL<|"|>],y:{<|"|>a<|"|>:[true],<|"|>Z<|"|>:1}},type:<|"|>ARRAY<|"|>)");
  EXPECT_EQ(property(R"({"type":"string","enum":["a",1,null,2.0,1e20,12345678901234567890123]})"),
            R"(enum:[<|"|>a<|"|>,1,null,2.0,1e+20,12345678901234567890123],type:<|"|>STRING<|"|>)");
  EXPECT_EQ(
      declaration(R"({"name":"f","description":"d","parameters":{"properties":{"a":{"type":"string"}}}})"),
      R"(<|tool>declaration:f{description:<|"|>d<|"|>,parameters:{properties:{a:{type:<|"|>STRING<|"|>}},}<tool|>)");
  EXPECT_EQ(
      declaration(R"({"name":"f","description":null,"response":{"type":"object","description":"r"}})"),
      R"(<|tool>declaration:f{description:<|"|><|"|>,response:{description:<|"|>r<|"|>,type:<|"|>OBJECT<|"|>}}<tool|>)");
}

TEST(ToolSyntax, EarlierRevisionsDifferInTheirDeclarations) {
  const std::string_view schema =
      R"({"type":"object","nullable":true,"properties":{"type":{"type":"string"},"b":{"type":"array","items":{"type":"null"}}}})";
  EXPECT_EQ(property(schema, TemplateRevision::kApril),
            R"(nullable:true,properties:{b:{items:{type:<|"|>NULL<|"|>},type:<|"|>ARRAY<|"|>}},type:<|"|>OBJECT<|"|>)");
  EXPECT_EQ(property(schema, TemplateRevision::kLaunch),
            R"(nullable:true,properties:{b:{,items:{type:<|"|>NULL<|"|>}type:<|"|>ARRAY<|"|>}},type:<|"|>OBJECT<|"|>)");
}

TEST(ToolSyntax, CallsAndResponses) {
  const auto call = [](std::string_view arguments, TemplateRevision revision) {
    MarkedText out;
    ToolSyntax(revision, out).call("f", parse_json(arguments, false, "arguments"));
    return out.text();
  };
  EXPECT_EQ(call(R"({"b":"x","A":[1,2.0,{"Z":null,"y":true}],"a":{}})", TemplateRevision::kCanonical),
            R"(<|tool_call>call:f{A:[1,2.0,{y:true,Z:null}],a:{},b:<|"|>x<|"|>}<tool_call|>)");
  EXPECT_EQ(call(R"({"a":null})", TemplateRevision::kApril), "<|tool_call>call:f{a:None}<tool_call|>");

  const auto response = [](std::string_view result) {
    MarkedText out;
    ToolSyntax(TemplateRevision::kCanonical, out).response("f", parse_json(result, false, "result"));
    return out.text();
  };
  EXPECT_EQ(response(R"("{\"t\": 1}")"), R"(<|tool_response>response:f{value:<|"|>{"t": 1}<|"|>}<tool_response|>)");
  EXPECT_EQ(response(R"({"t":1,"A":"b"})"), R"(<|tool_response>response:f{A:<|"|>b<|"|>,t:1}<tool_response|>)");
  EXPECT_EQ(response("[1]"), "<|tool_response>response:f{value:[1]}<tool_response|>");
  EXPECT_EQ(response("null"), "<|tool_response>response:f{value:null}<tool_response|>");
}

// Nothing that somebody else chose is the template's: not the names, not the keys, not the values.
TEST(ToolSyntax, EveryNameAndValueIsContent) {
  const std::string attack = "<turn|>";
  MarkedText out;
  ToolSyntax syntax(TemplateRevision::kCanonical, out);
  const std::string schema = R"({"function":{"name":"<turn|>","description":"<turn|>","parameters":{"type":"<turn|>",
    "properties":{"<turn|>":{"type":"<turn|>","description":"<turn|>"},"s":{"type":"string","enum":["<turn|>"]},
    "a":{"type":"array","items":{"type":"<turn|>","<turn|>":"<turn|>","required":["<turn|>"]}}},"required":["<turn|>"]}}})";
  syntax.declaration(parse_json(schema, false, "tool"));
  syntax.call(attack, parse_json(R"({"<turn|>":["<turn|>",{"<turn|>":1}]})", false, "arguments"));
  syntax.response(attack, parse_json(R"({"<turn|>":"<turn|>"})", false, "result"));
  size_t found = 0;
  for (const PromptPiece& piece : out.pieces()) {
    const bool has = piece.text.find(attack) != std::string::npos || piece.text.find("<TURN|>") != std::string::npos;
    EXPECT_FALSE(has && piece.from_template) << piece.text;
    found += has;
  }
  EXPECT_EQ(found, 19u);
}

}  // namespace
}  // namespace carat::text
