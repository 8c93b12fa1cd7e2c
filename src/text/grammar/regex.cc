#include "text/grammar/regex.h"

#include <string>

#include "text/grammar/grammar_builder.h"
#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/pattern.h"

namespace carat::text::grammar {

namespace {

// Whether the last character stands for itself.
bool ends_escaped(std::string_view regex) {
  size_t backslashes = 0;
  while (backslashes + 1 < regex.size() && regex[regex.size() - 2 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

}  // namespace

Grammar grammar_from_regex(std::string_view regex) {
  std::string_view inside = regex;
  if (inside.starts_with('^')) inside.remove_prefix(1);
  if (inside.ends_with('$') && !ends_escaped(inside)) inside.remove_suffix(1);
  GrammarBuilder builder;
  // In the notation of calls every character stands for itself, as it does in text.
  JsonParts parts(builder, Notation::kToolCall);
  const RuleId root = builder.declare("root", "regular expression");
  const std::string whole = "^(?:" + std::string(inside) + ")$";
  builder.define(root, characters_matching(builder, parts, whole, 0, kUnbounded, "regular expression"));
  return builder.finish(root);
}

}  // namespace carat::text::grammar
