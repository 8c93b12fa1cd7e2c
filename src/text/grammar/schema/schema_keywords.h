#pragma once

#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

// Checks that what the keywords of one schema say has the form it must have. Names that mean nothing in JSON Schema are
// noted: the schema goes on to be valid, but who wrote them may have expected something.
void check_keywords(SchemaDocument& document, const SchemaPart& part, int draft);

// Whether a keyword says something about which values are valid.
bool is_assertion(std::string_view name);

}  // namespace carat::text::grammar
