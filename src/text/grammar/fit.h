#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "text/grammar/automaton.h"

namespace carat::text::grammar {

// How far a text can be written under a grammar.
struct Fit {
  size_t bytes = 0;          // of the text, from its start
  bool is_complete = false;  // all of it, and it may end there
};

// Byte by byte, as a matcher does it whose tokens are single bytes.
Fit fit_of(const std::shared_ptr<const Automaton>& automaton, std::string_view text);

}  // namespace carat::text::grammar
