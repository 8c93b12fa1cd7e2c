#pragma once

#include <memory>
#include <string>

#include "text/chat/conversation.h"

namespace carat::text::grammar {
class CompiledGrammar;
class TokenTrie;
}  // namespace carat::text::grammar

namespace carat::text {

// A function, and what a model that calls it can be held to. Immutable, so that one serves any number of answers at the
// same time.
struct CallableTool {
  std::string name;
  // What stands behind the name in a call (grammar/notation.h): arguments that are valid under the tool's schema, or
  // any arguments where that cannot be assured. Null when no call can have this name.
  std::shared_ptr<const grammar::CompiledGrammar> arguments;
  // Why that is so, with the JSON pointer of the keyword in the schema; empty when the schema is enforced.
  std::string problem;
};

// Takes the time of compiling a grammar, a millisecond or so for most tools, and never throws for what is in a tool.
CallableTool callable_tool(const Tool& tool, const std::shared_ptr<const grammar::TokenTrie>& trie);

}  // namespace carat::text
