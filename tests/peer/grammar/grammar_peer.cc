// What the peer tests run:
//   grammar_peer outputs VOCAB.gguf COUNT [SCHEMAS.json]
//                                           stdout: JSON [{"name", "schema", "outputs": [...]}], random outputs within
//                                           the masks for each schema that must have a grammar, or of each in the file
//   grammar_peer speed VOCAB.gguf           stdout: JSON with the cost of masks
#include <fmt/format.h>
#include <time.h>  // clock_gettime is POSIX, not in <ctime>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "gguf/reader.h"
#include "support/files.h"
#include "text/grammar/fit.h"
#include "text/grammar/matcher.h"
#include "text/grammar/random_walk.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema_cases.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/callable_tool.h"

namespace {

using carat::text::TokenId;
using carat::text::Tokenizer;
using carat::text::Vocab;
namespace grammar = carat::text::grammar;

// Of processor time: what else the machine does is not the grammar's cost.
double microseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}
double microseconds_since(double start) { return microseconds() - start; }

// Schemas from a file: [{"name", "schema"}].
std::vector<grammar::test::SchemaCase> cases_of(const std::string& path) {
  std::vector<grammar::test::SchemaCase> cases;
  for (const auto& entry : nlohmann::ordered_json::parse(carat::test::read_text(path))) {
    grammar::test::SchemaCase each;
    each.name = entry.at("name");
    each.schema = entry.at("schema").dump();
    cases.push_back(std::move(each));
  }
  return cases;
}

// The same value with the members of its objects in another order, but for those inside of arrays, which may have to be
// written in one way only (uniqueItems).
nlohmann::ordered_json shuffled(carat::test::Random& random, const nlohmann::ordered_json& value) {
  if (!value.is_object()) return value;
  std::vector<std::string> names;
  for (const auto& [name, member] : value.items()) names.insert(names.begin() + random.below(names.size() + 1), name);
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  for (const std::string& name : names) result[name] = shuffled(random, value[name]);
  return result;
}

// Half of the outputs with members in any order; these begin like shuffled ones of the other half, because no random
// walk spells the names that are required. What is refused has its reason instead.
nlohmann::json outputs(const std::shared_ptr<const Vocab>& vocab, size_t count,
                       const std::vector<grammar::test::SchemaCase>& cases) {
  const Tokenizer tokenizer(vocab);
  const auto trie = std::make_shared<const grammar::TokenTrie>(vocab);
  nlohmann::json answers = nlohmann::json::array();
  for (const grammar::test::SchemaCase& each : cases) {
    if (!each.error.empty()) continue;
    std::vector<std::vector<TokenId>> examples;
    for (const std::string& text : each.valid) examples.push_back(tokenizer.encode(text));
    nlohmann::json answer = {{"name", each.name}, {"schema", each.schema}, {"outputs", nlohmann::json::array()}};
    std::vector<std::string> others;
    try {
      for (const auto style : {grammar::JsonStyle::kSchema, grammar::JsonStyle::kFree}) {
        carat::test::Random random(20260822);
        const auto compiled = grammar::compile(grammar::grammar_from_json_schema(each.schema, style), trie);
        for (const std::string& text : others) {
          // Read and written again, numbers may look otherwise than they are allowed to.
          if (grammar::fit_of(compiled->automaton(), text).is_complete) examples.push_back(tokenizer.encode(text));
        }
        const bool has_examples = style == each.style || style == grammar::JsonStyle::kFree;
        const auto texts = grammar::test::random_outputs(
            random, compiled, has_examples ? examples : std::vector<std::vector<TokenId>>(), (count + 1) / 2);
        for (const std::string& text : texts) {
          answer["outputs"].push_back(text);
          if (style == grammar::JsonStyle::kFree) continue;
          others.push_back(shuffled(random, nlohmann::ordered_json::parse(text)).dump());
        }
      }
    } catch (const carat::Error& error) {
      answer["error"] = error.what();
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

// The valid instances of the file, token by token: first with nothing remembered, then again with a new matcher, which
// is what a second answer costs.
nlohmann::json speed(const std::shared_ptr<const Vocab>& vocab) {
  const Tokenizer tokenizer(vocab);
  const double start = microseconds();
  const auto trie = std::make_shared<const grammar::TokenTrie>(vocab);
  nlohmann::json result = {{"tokens", vocab->size()}, {"trie_milliseconds", microseconds_since(start) / 1e3}};
  double compile_time = 0, worst_first = 0, sums[2] = {};
  size_t steps = 0;
  for (const grammar::test::SchemaCase& each : grammar::test::schema_cases()) {
    if (!each.error.empty() || each.valid.empty()) continue;
    const double compile_start = microseconds();
    const auto compiled = grammar::compile(grammar::grammar_from_json_schema(each.schema), trie);
    compile_time = std::max(compile_time, microseconds_since(compile_start));
    for (const std::string& text : each.valid) {
      const auto tokens = tokenizer.encode(text);
      steps += tokens.size() + 1;
      for (int round = 0; round < 2; ++round) {
        grammar::GrammarMatcher matcher(compiled);
        for (size_t i = 0; i <= tokens.size(); ++i) {
          const double step = microseconds();
          const bool possible = !matcher.allowed().empty();
          if (i < tokens.size() && possible) matcher.accept(tokens[i]);
          const double cost = microseconds_since(step);
          sums[round] += cost;
          if (round == 0) worst_first = std::max(worst_first, cost);
        }
      }
    }
  }
  result["largest_compile_milliseconds"] = compile_time / 1e3;
  result["steps"] = steps;
  result["first_microseconds"] = sums[0] / static_cast<double>(steps);
  result["first_worst_milliseconds"] = worst_first / 1e3;
  result["second_answer_microseconds"] = sums[1] / static_cast<double>(steps);
  return result;
}

// A long answer, as a model gives it: a list of records. The average over all its tokens.
double long_answer_microseconds(const std::shared_ptr<const Vocab>& vocab) {
  constexpr std::string_view kSchema =
      R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string","maxLength":40},"note":{"type":
      "string"},"count":{"type":"integer","minimum":0,"maximum":999},"kind":{"enum":["small","large"]}},
      "required":["name","note","count","kind"],"additionalProperties":false}})";
  std::string text = "[";
  for (int i = 0; i < 100; ++i) {
    text += fmt::format(
        R"({}{{"name": "item number {}","note": "some words about it, {} of them","count": {},"kind": "{}"}})",
        i == 0 ? "" : ", ", i, i * i, i % 1000, i % 3 == 0 ? "small" : "large");
  }
  const auto tokens = Tokenizer(vocab).encode(text + "]");
  const auto compiled = grammar::compile(grammar::grammar_from_json_schema(kSchema), vocab);
  grammar::GrammarMatcher matcher(compiled);
  const double start = microseconds();
  for (const TokenId token : tokens) {
    if (!matcher.allowed().allows(token)) throw std::runtime_error("the long answer is not allowed");
    matcher.accept(token);
  }
  return microseconds_since(start) / static_cast<double>(tokens.size());
}

// As many tools as a coding agent sends, 55 kB of them: those of the file, again and again. With their masks' automata.
double tools_milliseconds(const std::shared_ptr<const Vocab>& vocab) {
  constexpr size_t kBytes = 55'000;
  const auto trie = std::make_shared<const grammar::TokenTrie>(vocab);
  std::vector<carat::text::Tool> tools;
  const auto path = carat::test::source_directory() / "tests/text/tool_schemas.json";
  for (const auto& tool : nlohmann::ordered_json::parse(carat::test::read_text(path.string()))) {
    tools.push_back({tool.at("function").at("name"), tool.dump()});
  }
  const double start = microseconds();
  for (size_t bytes = 0, i = 0; bytes < kBytes; ++i) {
    const carat::text::Tool& tool = tools[i % tools.size()];
    bytes += tool.json.size();
    if (!carat::text::callable_tool(tool, trie).arguments) throw std::runtime_error(tool.name + " cannot be called");
  }
  return microseconds_since(start) / 1e3;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if ((mode != "outputs" || argc < 4 || argc > 5) && (mode != "speed" || argc != 3)) {
    throw std::invalid_argument("usage: grammar_peer outputs VOCAB.gguf COUNT [SCHEMAS.json] | speed VOCAB.gguf");
  }
  const auto file = carat::gguf::ModelFile::open(argv[2]);
  const auto vocab = Vocab::from_metadata(file->metadata());
  nlohmann::json answer;
  if (mode == "outputs") {
    answer = outputs(vocab, std::stoul(argv[3]), argc == 5 ? cases_of(argv[4]) : grammar::test::schema_cases());
  } else {
    answer = speed(vocab);
  }
  if (mode == "speed") {
    answer["long_answer_microseconds"] = long_answer_microseconds(vocab);
    answer["tools_milliseconds"] = tools_milliseconds(vocab);
  }
  std::cout << answer.dump() << "\n";
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "grammar_peer: {}\n", error.what());
  return 1;
}
