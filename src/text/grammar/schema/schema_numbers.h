#pragma once

#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

// The numbers that keep the bounds and factors of `facts`. Throws kBadArgument for factors that cannot be assured.
ExpressionId number_expression(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts);

}  // namespace carat::text::grammar
