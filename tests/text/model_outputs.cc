#include "text/model_outputs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "support/files.h"

namespace carat::text::test {

namespace {

using Json = nlohmann::ordered_json;

std::string call_text(const std::string& name, const Json& arguments) { return name + " " + arguments.dump(); }

}  // namespace

std::vector<ModelOutput> model_outputs() {
  const auto path = carat::test::source_directory() / "tests/text/model_outputs.json";
  std::vector<ModelOutput> outputs;
  for (const Json& entry : Json::parse(carat::test::read_text(path.string()))) {
    ModelOutput output{entry.at("name"),
                       entry.at("prompt"),
                       entry.at("output"),
                       entry.at("cut"),
                       entry.at("thought"),
                       entry.at("answer"),
                       {},
                       entry.at("bad")};
    for (const Json& call : entry.at("calls")) output.calls.push_back(call_text(call.at("name"), call.at("arguments")));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

OutputSink ParsedOutput::sink() {
  return [this](OutputEvent event) {
    switch (event.kind) {
      case OutputEvent::Kind::kThought:
        EXPECT_FALSE(event.text.empty());
        thought += event.text;
        break;
      case OutputEvent::Kind::kAnswer:
        EXPECT_FALSE(event.text.empty());
        answer += event.text;
        break;
      case OutputEvent::Kind::kToolCall:
        calls.push_back(call_text(event.name, Json::parse(event.arguments)));
        break;
      case OutputEvent::Kind::kBadToolCall:
        EXPECT_FALSE(event.problem.empty());
        bad.push_back(event.text);
        break;
    }
  };
}

std::ostream& operator<<(std::ostream& out, const ParsedOutput& parsed) {
  return out << Json{{"thought", parsed.thought},
                     {"answer", parsed.answer},
                     {"calls", parsed.calls},
                     {"bad", parsed.bad}}
                    .dump();
}

ParsedOutput expected(const ModelOutput& output) { return {output.thought, output.answer, output.calls, output.bad}; }

}  // namespace carat::text::test
