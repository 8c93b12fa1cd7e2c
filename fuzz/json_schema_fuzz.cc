// JSON schemas of any content: each is refused with carat::Error, or can be followed without ever coming to a dead end,
// and what comes out is JSON that is valid, as carat's judge of values has it, which does not know the grammar. What
// ajv says of random schemas: tests/peer/grammar/check_real.mjs.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "fuzz_check.h"
#include "grammar_walk.h"
#include "text/grammar/schema/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  std::optional<carat::text::grammar::Grammar> grammar;
  try {
    grammar = carat::text::grammar::grammar_from_json_schema(source);
  } catch (const carat::Error& error) {
    FUZZ_CHECK(error.code() == carat::ErrorCode::kBadArgument);
    return 0;
  }
  const std::string text = carat::fuzz::walk_grammar(*grammar, size);
  if (text.empty()) return 0;
  FUZZ_CHECK(nlohmann::json::accept(text));
  try {
    FUZZ_CHECK(carat::text::grammar::json_schema_violation(source, text).empty());
  } catch (const carat::Error& error) {  // takes too long
    FUZZ_CHECK(error.code() == carat::ErrorCode::kBadArgument);
  }
  return 0;
}
