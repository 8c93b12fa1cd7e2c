#pragma once

#include <string>
#include <vector>

#include "text/output/output_parser.h"

namespace carat::text::test {

// An output of a model and what it means (model_outputs.json).
struct ModelOutput {
  std::string name;
  std::string prompt;  // its end decides where the output begins
  std::string output;  // with its marks as text
  bool cut;            // it was ended by a limit, not by the model
  std::string thought;
  std::string answer;
  std::vector<std::string> calls;  // "name arguments", the arguments as canonical JSON
  std::vector<std::string> bad;    // calls that are none, as the model wrote them
};
std::vector<ModelOutput> model_outputs();

// What a parser reported, put together.
struct ParsedOutput {
  std::string thought;
  std::string answer;
  std::vector<std::string> calls;
  std::vector<std::string> bad;

  OutputSink sink();
  bool operator==(const ParsedOutput&) const = default;
};
std::ostream& operator<<(std::ostream& out, const ParsedOutput& parsed);
ParsedOutput expected(const ModelOutput& output);

}  // namespace carat::text::test
