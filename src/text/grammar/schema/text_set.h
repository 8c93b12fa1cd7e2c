#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// A regular set of texts, as a deterministic automaton over code points. Everything a schema says about one string can
// be said with it: patterns, lengths, values, and what must not be. From each state some text of the set can be
// completed; the empty set has no states. Operations throw kBadArgument, with `place` in the message, where they would
// need more than kMaxTextStates states.
class TextSet {
 public:
  struct Edge {
    uint32_t first, last;  // code points, both included
    uint32_t target;
  };
  struct State {
    bool accepting = false;
    std::vector<Edge> edges;  // sorted, apart
  };

  static TextSet everything();
  // Of these characters, at least one.
  static TextSet some_of(std::span<const CodePointRange> characters);
  static TextSet of_words(std::span<const std::string> words);
  // Of `min` to `max` characters; `max` may be kUnbounded.
  static TextSet of_length(uint32_t min, uint32_t max, std::string_view place);
  // What a regular expression of JavaScript with the flag u matches anywhere, unless it is anchored.
  static TextSet matching(std::string_view pattern, std::string_view place);

  TextSet and_with(const TextSet& other, std::string_view place) const;
  TextSet and_not(const TextSet& other, std::string_view place) const;
  TextSet or_with(const TextSet& other, std::string_view place) const;

  bool empty() const { return states_.empty(); }
  bool contains(std::string_view text) const;
  bool is_finite() const;
  // All of them, where there are at most `most`.
  std::optional<std::vector<std::string>> words(size_t most) const;
  const std::vector<State>& states() const { return states_; }  // the first is where a text begins

 private:
  enum class Operation : uint8_t { kAnd, kAndNot, kOr };
  friend class PatternAutomaton;

  TextSet combined(const TextSet& other, Operation operation, std::string_view place) const;
  void trim();

  std::vector<State> states_;
};

}  // namespace carat::text::grammar
