#pragma once

#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

// The numbers that fit the facts. Throws kBadArgument for factors that cannot be assured.
ExpressionId number_expression(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts);

// In decimal numbers, as both are written.
bool is_multiple(const Json& value, const Json& factor);

}  // namespace carat::text::grammar
