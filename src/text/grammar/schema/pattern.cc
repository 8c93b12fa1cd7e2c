#include "text/grammar/schema/pattern.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/pattern_syntax.h"

namespace carat::text::grammar {

namespace {

// Lengths in characters; kUnbounded stays what it is.
uint32_t add_lengths(uint32_t a, uint32_t b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} + b, kUnbounded - 1));
}
uint32_t multiply_lengths(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, kUnbounded - 1));
}

// A part of a pattern: `unit` repeated; its length in characters follows.
struct Piece {
  ExpressionId unit;
  uint32_t unit_min, unit_max;
  uint32_t times_min = 1, times_max = 1;

  uint32_t min() const { return multiply_lengths(unit_min, times_min); }
  uint32_t max() const { return multiply_lengths(unit_max, times_max); }
};

struct Alternative {
  std::vector<Piece> pieces;
  bool from_start = false, to_end = false;  // ^ and $
};

// Writes a pattern as an expression; what it cannot is left to TextSet.
class PatternWriter {
 public:
  PatternWriter(GrammarBuilder& builder, JsonParts& parts) : builder_(builder), parts_(parts) {}

  std::optional<Piece> piece(const PatternNode& node) {
    switch (node.kind) {
      case PatternNode::Kind::kSet:
        return Piece{parts_.character_of(node.set), 1, 1};
      case PatternNode::Kind::kSequence:
        return sequence(node);
      case PatternNode::Kind::kChoice:
        return choice(node);
      case PatternNode::Kind::kRepeat: {
        auto repeated = piece(node.children[0]);
        if (!repeated) return std::nullopt;
        if (repeated->times_min != 1 || repeated->times_max != 1) {
          *repeated = {builder_.repeat(repeated->unit, repeated->times_min, repeated->times_max), repeated->min(),
                       repeated->max()};
        }
        repeated->times_min = node.min;
        repeated->times_max = node.max;
        return repeated;
      }
      default:
        return std::nullopt;  // assertions inside
    }
  }

  // A whole alternative, whose anchors are at its ends.
  std::optional<Alternative> alternative(const PatternNode& node) {
    Alternative result;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const PatternNode& child = node.children[i];
      if (child.kind == PatternNode::Kind::kStart && i == 0) {
        result.from_start = true;
      } else if (child.kind == PatternNode::Kind::kEnd && i + 1 == node.children.size()) {
        result.to_end = true;
      } else if (const auto written = piece(child)) {
        result.pieces.push_back(*written);
      } else {
        return std::nullopt;
      }
    }
    return result;
  }

 private:
  std::optional<Piece> sequence(const PatternNode& node) {
    std::vector<ExpressionId> parts;
    uint32_t min = 0, max = 0;
    for (const PatternNode& child : node.children) {
      const auto written = piece(child);
      if (!written) return std::nullopt;
      parts.push_back(builder_.repeat(written->unit, written->times_min, written->times_max));
      min = add_lengths(min, written->min());
      max = add_lengths(max, written->max());
    }
    return Piece{builder_.sequence(parts), min, max};
  }

  std::optional<Piece> choice(const PatternNode& node) {
    std::vector<ExpressionId> parts;
    uint32_t min = kUnbounded, max = 0;
    for (const PatternNode& child : node.children) {
      const auto written = piece(child);
      if (!written) return std::nullopt;
      parts.push_back(builder_.repeat(written->unit, written->times_min, written->times_max));
      min = std::min(min, written->min());
      max = std::max(max, written->max());
    }
    return Piece{builder_.choice(parts), min, max};
  }

  GrammarBuilder& builder_;
  JsonParts& parts_;
};

// Narrows the one part whose length varies, so that the whole keeps the bounds. False when that is not how it is built.
bool keep_length(std::vector<Piece>& pieces, uint32_t min_length, uint32_t max_length, bool& impossible) {
  uint32_t min = 0, max = 0;
  Piece* varying = nullptr;
  size_t varying_count = 0;
  for (Piece& piece : pieces) {
    min = add_lengths(min, piece.min());
    max = add_lengths(max, piece.max());
    if (piece.min() == piece.max()) continue;
    varying = &piece;
    ++varying_count;
  }
  impossible = min > max_length || max < min_length;
  if (impossible || (min >= min_length && max <= max_length)) return true;
  if (varying_count != 1 || varying->unit_min != 1 || varying->unit_max != 1) return false;
  const uint32_t others = min - varying->min();
  if (min_length > others) varying->times_min = std::max(varying->times_min, min_length - others);
  if (max_length != kUnbounded) varying->times_max = std::min(varying->times_max, max_length - others);
  return true;
}

}  // namespace

std::optional<ExpressionId> pattern_expression(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                                               uint32_t min_length, uint32_t max_length, std::string_view place) {
  std::vector<ExpressionId> expressions;
  PatternWriter writer(builder, parts);
  for (const PatternNode& node : parse_pattern(pattern, place).children) {
    auto alternative = writer.alternative(node);
    if (!alternative) return std::nullopt;
    std::vector<Piece>& pieces = alternative->pieces;
    const auto anything = [&] { return Piece{parts.character(), 1, 1, 0, kUnbounded}; };
    if (!alternative->from_start) pieces.insert(pieces.begin(), anything());
    if (!alternative->to_end) pieces.push_back(anything());
    bool impossible = false;
    if (!keep_length(pieces, min_length, max_length, impossible)) return std::nullopt;
    if (impossible) continue;
    std::vector<ExpressionId> sequence;
    for (const Piece& piece : pieces) sequence.push_back(builder.repeat(piece.unit, piece.times_min, piece.times_max));
    expressions.push_back(builder.sequence(sequence));
  }
  return builder.choice(expressions);
}

ExpressionId expression_of(GrammarBuilder& builder, JsonParts& parts, const TextSet& set, const std::string& place) {
  if (set.empty()) return builder.nothing();
  std::vector<RuleId> rules;
  for (size_t i = 0; i < set.states().size(); ++i) rules.push_back(builder.declare("text", place));
  for (size_t i = 0; i < rules.size(); ++i) {
    const TextSet::State& state = set.states()[i];
    std::map<uint32_t, std::vector<CodePointRange>> by_target;
    for (const TextSet::Edge& edge : state.edges) by_target[edge.target].push_back({edge.first, edge.last});
    std::vector<ExpressionId> alternatives;
    if (state.accepting) alternatives.push_back(builder.empty());
    for (const auto& [target, ranges] : by_target) {
      alternatives.push_back(builder.sequence({parts.character_of(ranges), builder.call(rules[target])}));
    }
    builder.define(rules[i], builder.choice(alternatives));
  }
  return builder.call(rules[0]);
}

ExpressionId characters_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                                 uint32_t min_length, uint32_t max_length, std::string_view place) {
  if (const auto written = pattern_expression(builder, parts, pattern, min_length, max_length, place)) return *written;
  TextSet set = TextSet::matching(pattern, place);
  if (min_length > 0 || max_length != kUnbounded) {
    set = set.and_with(TextSet::of_length(min_length, max_length, place), place);
  }
  return expression_of(builder, parts, set, std::string(place));
}

}  // namespace carat::text::grammar
