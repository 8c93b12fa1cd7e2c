#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace carat::text::jinja {

// Throws kBadFile naming the line for what is no template, uses a part of the language that chat templates do not need
// (imports, inheritance, recursive loops), or exceeds the limits on size and nesting.
Block parse(std::string_view source, const Limits& limits);

}  // namespace carat::text::jinja
