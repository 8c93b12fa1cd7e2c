#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace carat::text::grammar::test {

// The public JSON-Schema-Test-Suite, which lies outside of the repository: in the folder that CARAT_JSON_SCHEMA_SUITE
// names, or in shared/json-schema-suite beside the checkout. nullopt where it is not.
std::optional<std::filesystem::path> schema_suite_folder();

struct SuiteInstance {
  std::string description;
  std::string text;  // the value, written without spaces
  bool valid;
};

struct SuiteSchema {
  std::string file;  // "anyOf.json"
  std::string description;
  std::string schema;
  std::vector<SuiteInstance> instances;
};

// The required tests of a draft: "draft2020-12". Schemas that do not say which draft they are written in get its
// $schema, as the suite means them.
std::vector<SuiteSchema> required_tests(const std::filesystem::path& suite, const std::string& draft);

// How some schemas and instances fared.
struct SuiteFigures {
  size_t schemas = 0, refused = 0;
  size_t valid = 0, valid_accepted = 0;  // instances of schemas that were not refused
  size_t invalid = 0, invalid_accepted = 0;

  void add(const SuiteFigures& other);
  std::string line() const;
};

// Tries every schema and instance. With `details`, a line for each refusal and each wrong answer goes to it.
SuiteFigures try_suite(const std::vector<SuiteSchema>& schemas, std::string* details);

}  // namespace carat::text::grammar::test
