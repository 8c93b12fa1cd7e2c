#include "text/grammar/schema_cases.h"

#include <fmt/format.h>

#include <stdexcept>

#include "support/files.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::text::grammar::test {

namespace {

using Json = nlohmann::ordered_json;

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (; count > 0; --count) result += text;
  return result;
}

// Schemas too large to be written out in the file.
std::string generated(const std::string& kind, size_t count) {
  if (kind == "deep properties") {
    return repeated(R"({"type":"object","required":["a"],"properties":{"a":)", count) + R"({"type":"integer"})" +
           repeated("}}", count);
  }
  if (kind == "deep items") return repeated(R"({"items":)", count) + "{}" + repeated("}", count);
  if (kind == "pattern") return fmt::format(R"({{"type":"string","pattern":"^{}$"}})", repeated("a", count));
  if (kind == "deep pattern") {
    return fmt::format(R"({{"type":"string","pattern":"^{}a{}$"}})", repeated("(", count), repeated(")", count));
  }
  if (kind == "long description") return fmt::format(R"({{"description":"{}"}})", repeated("a", count));
  Json schema;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("name{}", i);
    if (kind == "enum") {
      schema["enum"].push_back(name);
    } else if (kind == "optional properties") {
      schema["properties"][name] = {{"type", "integer"}};
    } else if (kind == "property chain") {
      schema["$defs"][name] = {{"type", "object"},
                               {"properties", {{"x", {{"$ref", fmt::format("#/$defs/name{}", (i + 1) % count)}}}}}};
      schema["$ref"] = "#/$defs/name0";
    } else if (kind.starts_with("doubling anyOf")) {
      const Json next = {{"$ref", fmt::format("#/$defs/name{}", i + 1)}};
      schema["$defs"][name] = {{"anyOf", Json::array({next, next})}};
      schema["$defs"][fmt::format("name{}", i + 1)] = {{"type", "integer"}};
      schema["$ref"] = "#/$defs/name0";
      if (kind == "doubling anyOf with const") schema["const"] = "not an integer";
    } else if (kind == "anyOf product") {
      Json alternatives;
      for (const char* suffix : {"a", "b", "c"}) alternatives.push_back({{"required", {name + suffix}}});
      schema["allOf"].push_back({{"anyOf", alternatives}});
    } else {
      throw std::invalid_argument("unknown kind of schema: " + kind);
    }
  }
  if (kind == "optional properties") schema["type"] = "object";
  return schema.dump();
}

std::vector<std::string> texts_of(const Json& entry, const char* key) {
  std::vector<std::string> texts;
  if (entry.contains(key)) {
    for (const Json& value : entry[key]) texts.push_back(value.dump());
  }
  return texts;
}

}  // namespace

std::vector<SchemaCase> schema_cases() {
  const auto path = carat::test::source_directory() / "tests/text/grammar/schemas.json";
  std::vector<SchemaCase> cases;
  for (const Json& entry : Json::parse(carat::test::read_text(path.string()))) {
    SchemaCase each;
    each.name = entry.at("name");
    each.schema = entry.contains("schema")
                      ? entry["schema"].dump()
                      : generated(entry.at("generated").at("kind"), entry["generated"].at("count"));
    each.error = entry.value("error", "");
    each.valid = texts_of(entry, "valid");
    each.invalid = texts_of(entry, "invalid");
    each.style = parse_json_style(entry.value("style", "free"), "style");
    each.hostile = entry.value("hostile", false);
    cases.push_back(std::move(each));
  }
  return cases;
}

}  // namespace carat::text::grammar::test
