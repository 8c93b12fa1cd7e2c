#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/grammar/schema/json_schema.h"

namespace carat::text::grammar::test {

// A schema of schemas.json, and what must come of it.
struct SchemaCase {
  std::string name;
  std::string schema;                // as text
  std::string error;                 // part of the message; empty: there must be a grammar
  std::vector<std::string> valid;    // texts that the grammar must accept
  std::vector<std::string> invalid;  // and that it must not
  bool hostile = false;
  JsonStyle style = JsonStyle::kFree;
};

std::vector<SchemaCase> schema_cases();

}  // namespace carat::text::grammar::test
