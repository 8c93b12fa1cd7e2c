#include "text/grammar/schema_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/error.h"
#include "support/files.h"
#include "text/grammar/automaton.h"
#include "text/grammar/fit.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::text::grammar::test {

namespace {

using Json = nlohmann::ordered_json;

std::string dialect_of(const std::string& draft) {
  static const std::map<std::string, std::string> kDialects = {
      {"draft4", "http://json-schema.org/draft-04/schema#"},
      {"draft7", "http://json-schema.org/draft-07/schema#"},
      {"draft2020-12", "https://json-schema.org/draft/2020-12/schema"}};
  return kDialects.at(draft);
}

}  // namespace

std::optional<std::filesystem::path> schema_suite_folder() {
  const char* named = std::getenv("CARAT_JSON_SCHEMA_SUITE");
  const std::filesystem::path folder =
      named != nullptr ? std::filesystem::path(named)
                       : carat::test::source_directory().parent_path() / "shared" / "json-schema-suite";
  if (!std::filesystem::is_directory(folder / "tests")) return std::nullopt;
  return folder;
}

std::vector<SuiteSchema> required_tests(const std::filesystem::path& suite, const std::string& draft) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(suite / "tests" / draft)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<SuiteSchema> schemas;
  for (const auto& file : files) {
    for (const Json& group : Json::parse(carat::test::read_text(file.string()))) {
      Json schema = group.at("schema");
      if (schema.is_object() && !schema.contains("$schema")) schema["$schema"] = dialect_of(draft);
      SuiteSchema each = {file.filename().string(), group.at("description"), schema.dump(), {}};
      for (const Json& test : group.at("tests")) {
        each.instances.push_back({test.at("description"), test.at("data").dump(), test.at("valid")});
      }
      schemas.push_back(std::move(each));
    }
  }
  return schemas;
}

void SuiteFigures::add(const SuiteFigures& other) {
  schemas += other.schemas;
  refused += other.refused;
  valid += other.valid;
  valid_accepted += other.valid_accepted;
  invalid += other.invalid;
  invalid_accepted += other.invalid_accepted;
}

std::string SuiteFigures::line() const {
  return fmt::format("{:3} schemas, {:3} refused ({:4.1f}%), {:3} of {:3} valid accepted ({:5.1f}%), {} of {} invalid",
                     schemas, refused, 100.0 * static_cast<double>(refused) / static_cast<double>(schemas),
                     valid_accepted, valid, 100.0 * static_cast<double>(valid_accepted) / static_cast<double>(valid),
                     invalid_accepted, invalid);
}

SuiteFigures try_suite(const std::vector<SuiteSchema>& schemas, std::string* details) {
  SuiteFigures all;
  const auto note = [&](const SuiteSchema& schema, const std::string& what) {
    if (details != nullptr) *details += fmt::format("{}: {}: {}\n", schema.file, schema.description, what);
  };
  for (const SuiteSchema& each : schemas) {
    ++all.schemas;
    std::shared_ptr<const Automaton> automaton;
    try {
      automaton = std::make_shared<const Automaton>(grammar_from_json_schema(each.schema));
    } catch (const Error& error) {
      // A schema that no value fulfils has no grammar, which is the right answer.
      const bool impossible = std::string_view(error.what()).find("no text fits") != std::string_view::npos;
      const bool any_valid = std::any_of(each.instances.begin(), each.instances.end(), [](auto& i) { return i.valid; });
      if (impossible && !any_valid) {
        all.invalid += each.instances.size();
        continue;
      }
      ++all.refused;
      note(each, fmt::format("refused: {}", error.what()));
      continue;
    }
    for (const SuiteInstance& instance : each.instances) {
      const bool accepted = fit_of(automaton, instance.text).is_complete;
      (instance.valid ? all.valid : all.invalid) += 1;
      if (accepted) (instance.valid ? all.valid_accepted : all.invalid_accepted) += 1;
      if (accepted != instance.valid) {
        note(each, fmt::format("{} {}: {}", accepted ? "accepts invalid" : "misses valid", instance.text,
                               instance.description));
      }
    }
  }
  return all;
}

}  // namespace carat::text::grammar::test
