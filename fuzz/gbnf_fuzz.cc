// Grammars of any content: each is refused with carat::Error, or can be followed without ever coming to a dead end.
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "fuzz_check.h"
#include "grammar_walk.h"
#include "text/grammar/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  std::optional<carat::text::grammar::Grammar> grammar;
  try {
    grammar = carat::text::grammar::parse_gbnf(source);
  } catch (const carat::Error& error) {
    FUZZ_CHECK(error.code() == carat::ErrorCode::kBadArgument);
    return 0;
  }
  carat::fuzz::walk_grammar(*grammar, size);
  return 0;
}
