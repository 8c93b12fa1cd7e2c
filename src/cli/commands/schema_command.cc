#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal.h"
#include "text/grammar/automaton.h"
#include "text/grammar/fit.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::cli {

namespace {

struct SchemaFlags {
  std::string file;
  std::string instance;
  std::string style = "free";
  bool arguments = false;
};

// Where in the text the grammar stops, with what stands before.
std::string place_in(const std::string& text, size_t bytes) {
  constexpr size_t kShown = 40;
  const size_t begin = bytes > kShown ? bytes - kShown : 0;
  return fmt::format("byte {} of the compact text, after {}{}", bytes, begin > 0 ? "…" : "",
                     bytes == 0 ? "nothing" : text.substr(begin, bytes - begin));
}

// Whether the instance can be written; prints why not.
bool check(const SchemaFlags& flags, const std::string& schema,
           const std::shared_ptr<const text::grammar::Automaton>& automaton) {
  const std::string source = read_text_file(flags.instance);
  const std::string problem = text::grammar::json_schema_violation(schema, source);
  if (!problem.empty()) {
    write_stdout(fmt::format("{}: not valid: {}\n", flags.instance, problem));
    return false;
  }
  const std::string compact = nlohmann::ordered_json::parse(source).dump();
  const text::grammar::Fit fit = text::grammar::fit_of(automaton, compact);
  if (fit.is_complete) {
    write_stdout(fmt::format("{}: valid, and can be written\n", flags.instance));
    return true;
  }
  write_stdout(fmt::format("{}: valid, but not written: what is narrower than the schema stops at {}\n", flags.instance,
                           place_in(compact, fit.bytes)));
  return false;
}

void examine(const SchemaFlags& flags) {
  if (flags.arguments && !flags.instance.empty()) {
    fail(ErrorCode::kBadArgument, "--check compares JSON, and --arguments is about the notation of calls: give one");
  }
  const auto style = text::grammar::parse_json_style(flags.style, "--json-style");
  const std::string schema = read_text_file(flags.file);
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<const text::grammar::Automaton> automaton;
  std::vector<std::string> notes;
  try {
    const auto grammar = flags.arguments ? text::grammar::grammar_of_arguments(schema)
                                         : text::grammar::grammar_from_json_schema(schema, style);
    notes = grammar.notes();
    automaton = std::make_shared<const text::grammar::Automaton>(grammar);
  } catch (const Error& error) {
    fail(error.code(), "{}: refused: {}", flags.file, error.what());
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  std::string keywords;
  for (const auto& [keyword, count] : text::grammar::json_schema_keywords(schema)) {
    keywords += fmt::format("{}{} ({})", keywords.empty() ? "" : ", ", keyword, count);
  }
  write_stdout(
      fmt::format("{}: enforced; made in {:.1f} ms, {} states\n", flags.file, time.count(), automaton->size()));
  write_stdout(fmt::format("keywords: {}\n", keywords.empty() ? "none" : keywords));
  for (const std::string& note : notes) write_stdout(fmt::format("narrowed: {}\n", note));
  if (!flags.instance.empty() && !check(flags, schema, automaton)) throw CLI::RuntimeError(kBadUsage);
}

}  // namespace

void add_schema_command(CLI::App& app) {
  auto flags = std::make_shared<SchemaFlags>();
  CLI::App& command = *app.add_subcommand("schema", "What of a JSON schema answers are held to, and whether one fits");
  command.add_option("schema", flags->file, "JSON schema; - is standard input")->required()->type_name("FILE");
  command.add_option("--check", flags->instance, "a JSON value: does it fit, and where does it stop fitting")
      ->type_name("INSTANCE");
  command.add_option("--json-style", flags->style, "members in any order, or in the schema's order and no others")
      ->type_name("free|schema")
      ->capture_default_str();
  command.add_flag("--arguments", flags->arguments, "as the parameters of a tool, in the notation of calls");
  command.callback([flags] { examine(*flags); });
}

}  // namespace carat::cli
