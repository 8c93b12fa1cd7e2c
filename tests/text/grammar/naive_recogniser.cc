#include "text/grammar/naive_recogniser.h"

#include <algorithm>
#include <string>

#include "text/grammar/grammar_builder.h"

namespace carat::text::grammar::test {

using Kind = Expression::Kind;

NaiveRecogniser::NaiveRecogniser(const Grammar& grammar)
    : grammar_(grammar), productive_rules_(grammar.rules().size()) {
  for (bool changed = true; changed;) {
    changed = false;
    for (RuleId rule = 0; rule < grammar.rules().size(); ++rule) {
      if (productive_rules_[rule] || !productive(grammar.rules()[rule].body)) continue;
      changed = productive_rules_[rule] = true;
    }
  }
}

bool NaiveRecogniser::productive(ExpressionId id) const {
  const Expression& e = grammar_.expression(id);
  const auto is_productive = [this](ExpressionId child) { return productive(child); };
  switch (e.kind) {
    case Kind::kNothing:
      return false;
    case Kind::kLiteral:
    case Kind::kCharacters:
      return true;
    case Kind::kSequence:
      return std::ranges::all_of(grammar_.children(e), is_productive);
    case Kind::kChoice:
      return std::ranges::any_of(grammar_.children(e), is_productive);
    case Kind::kRepeat:
      return e.min == 0 || productive(grammar_.children(e)[0]);
    case Kind::kRule:
      return productive_rules_[e.first];
    case Kind::kScope:
      return productive(grammar_.children(e)[0]);
    case Kind::kPermutation: {
      const auto flags = grammar_.member_flags(e);
      uint64_t possible = 0;
      for (size_t i = 0; i < flags.size(); ++i) {
        const bool can = productive(grammar_.children(e)[i]);
        if (!can && (flags[i] & kRequiredMember) != 0) return false;
        if (can) possible += (flags[i] & kSingleMember) != 0 ? 1 : kUnbounded;
      }
      return possible >= e.min;
    }
  }
  return false;
}

bool NaiveRecogniser::matches(std::string_view text) {
  text_ = text;
  known_.clear();
  return ends(grammar_.rules()[grammar_.root()].body, 0)[text.size()];
}

bool NaiveRecogniser::can_begin(std::string_view prefix) {
  wants_more_ = false;
  return matches(prefix) || wants_more_;
}

std::vector<bool> NaiveRecogniser::ends_from(ExpressionId id, const std::vector<bool>& starts) {
  std::vector<bool> result(text_.size() + 1);
  for (size_t start = 0; start < starts.size(); ++start) {
    if (!starts[start]) continue;
    const auto found = ends(id, start);
    for (size_t i = 0; i < found.size(); ++i) result[i] = result[i] || found[i];
  }
  return result;
}

std::vector<bool> NaiveRecogniser::ends(ExpressionId id, size_t at) {
  const auto known = known_.find({id, at});
  if (known != known_.end()) return known->second;
  const auto [is_productive, is_new] = productive_.try_emplace(id, false);
  if (is_new) is_productive->second = productive(id);
  const auto result = is_productive->second ? compute_ends(id, at) : std::vector<bool>(text_.size() + 1);
  known_[{id, at}] = result;
  return result;
}

// At which positions `id`, read from `at` on, can end.
std::vector<bool> NaiveRecogniser::compute_ends(ExpressionId id, size_t at) {
  const Expression& e = grammar_.expression(id);
  std::vector<bool> result(text_.size() + 1);
  switch (e.kind) {
    case Kind::kNothing:
      break;
    case Kind::kLiteral: {
      const std::string_view literal = grammar_.literal(e);
      const std::string_view rest = text_.substr(at);
      if (rest.starts_with(literal)) {
        result[at + literal.size()] = true;
      } else if (literal.starts_with(rest)) {
        wants_more_ = true;
      }
      break;
    }
    case Kind::kCharacters:
      return ends_of_characters(e, at);
    case Kind::kSequence:
      result[at] = true;
      for (const ExpressionId child : grammar_.children(e)) result = ends_from(child, result);
      break;
    case Kind::kChoice:
      for (const ExpressionId child : grammar_.children(e)) {
        const auto found = ends(child, at);
        for (size_t i = 0; i < found.size(); ++i) result[i] = result[i] || found[i];
      }
      break;
    case Kind::kRepeat:
      return ends_of_repeat(e, at);
    case Kind::kRule:
      return ends(grammar_.rules()[e.first].body, at);
    case Kind::kScope:
      return ends(grammar_.children(e)[0], at);
    case Kind::kPermutation:
      add_permutations(e, at, std::vector<uint32_t>(e.count / 2), result);
      break;
  }
  return result;
}

// `read`: how often each member was.
void NaiveRecogniser::add_permutations(const Expression& e, size_t at, const std::vector<uint32_t>& read,
                                       std::vector<bool>& result) {
  const auto flags = grammar_.member_flags(e);
  uint64_t count = 0, missing = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    count += read[i];
    missing += (flags[i] & kRequiredMember) != 0 && read[i] == 0 ? 1 : 0;
  }
  if (count + missing > e.max) return;
  if (missing == 0 && count >= e.min) result[at] = true;
  for (size_t i = 0; i < read.size(); ++i) {
    if ((flags[i] & kSingleMember) != 0 && read[i] > 0) continue;
    std::vector<uint32_t> next = read;
    ++next[i];
    const uint64_t left = missing - ((flags[i] & kRequiredMember) != 0 && read[i] == 0 ? 1 : 0);
    if (count + 1 + left > e.max) continue;
    const auto found = ends(grammar_.children(e)[count == 0 ? i : i + read.size()], at);
    for (size_t end = at + 1; end < found.size(); ++end) {
      if (found[end]) add_permutations(e, end, next, result);
    }
  }
}

std::vector<bool> NaiveRecogniser::ends_of_characters(const Expression& expression, size_t at) {
  std::vector<bool> result(text_.size() + 1);
  const std::string_view rest = text_.substr(at);
  for (const CodePointRange& range : grammar_.ranges(expression)) {
    for (uint32_t code_point = range.first; code_point <= range.last; ++code_point) {
      std::string character;
      append_utf8(code_point, character);
      if (rest.starts_with(character)) {
        result[at + character.size()] = true;
      } else if (character.starts_with(rest)) {
        wants_more_ = true;
      }
    }
  }
  return result;
}

std::vector<bool> NaiveRecogniser::ends_of_repeat(const Expression& expression, size_t at) {
  const ExpressionId child = grammar_.children(expression)[0];
  std::vector<bool> result(text_.size() + 1);
  std::vector<bool> reached(text_.size() + 1);
  reached[at] = true;
  // Reading more often than there are bytes and required times only repeats empty readings.
  const uint64_t most = std::min<uint64_t>(expression.max, uint64_t{expression.min} + text_.size() + 1);
  for (uint64_t times = 0;; ++times) {
    if (times >= expression.min) {
      for (size_t i = 0; i < reached.size(); ++i) result[i] = result[i] || reached[i];
    }
    if (times == most || !productive(child)) break;
    reached = ends_from(child, reached);
  }
  return result;
}

}  // namespace carat::text::grammar::test
