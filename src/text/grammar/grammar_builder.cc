#include "text/grammar/grammar_builder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/automaton.h"
#include "text/grammar/limits.h"

namespace carat::text::grammar {

namespace {

constexpr uint32_t kLastCodePoint = 0x10ffff;
constexpr CodePointRange kSurrogates = {0xd800, 0xdfff};

}  // namespace

std::vector<CodePointRange> normalised(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& range : ranges) {
    const CodePointRange below = {range.first, std::min(range.last, kSurrogates.first - 1)};
    const CodePointRange above = {std::max(range.first, kSurrogates.last + 1), std::min(range.last, kLastCodePoint)};
    for (const CodePointRange& part : {below, above}) {
      if (part.first <= part.last) parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CodePointRange> joined;
  for (const CodePointRange& part : parts) {
    if (!joined.empty() && part.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, part.last);
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return normalised(std::move(rest));
}

std::vector<CodePointRange> intersection(const std::vector<CodePointRange>& a, const std::vector<CodePointRange>& b) {
  std::vector<CodePointRange> both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const CodePointRange common = {std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (common.first <= common.last) both.push_back(common);
    a[i].last < b[j].last ? ++i : ++j;
  }
  return both;
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto append = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) return append(code_point);
  if (code_point < 0x800) {
    append(0xc0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    append(0xe0 | code_point >> 12);
    append(0x80 | (code_point >> 6 & 0x3f));
  } else {
    append(0xf0 | code_point >> 18);
    append(0x80 | (code_point >> 12 & 0x3f));
    append(0x80 | (code_point >> 6 & 0x3f));
  }
  append(0x80 | (code_point & 0x3f));
}

ExpressionId GrammarBuilder::add(Expression expression) {
  if (grammar_.expressions_.size() >= kMaxExpressions) {
    fail(ErrorCode::kBadArgument, "the grammar has more than {} parts; make it smaller", kMaxExpressions);
  }
  grammar_.expressions_.push_back(expression);
  return static_cast<ExpressionId>(grammar_.expressions_.size() - 1);
}

ExpressionId GrammarBuilder::add_with_children(Expression expression, const std::vector<ExpressionId>& children) {
  uint32_t depth = 0;
  for (const ExpressionId child : children) depth = std::max<uint32_t>(depth, grammar_.expressions_[child].depth);
  // One level of a source's nesting may be a repetition of a choice of sequences.
  if (depth >= 4 * kMaxNesting) {
    fail(ErrorCode::kBadArgument, "the grammar nests more than {} deep; use rules of their own", kMaxNesting);
  }
  expression.depth = static_cast<uint16_t>(depth + 1);
  expression.first = static_cast<uint32_t>(grammar_.children_.size());
  expression.count = static_cast<uint32_t>(children.size());
  if (grammar_.children_.size() + children.size() > kMaxExpressions) {
    fail(ErrorCode::kBadArgument, "the grammar has more than {} parts; make it smaller", kMaxExpressions);
  }
  grammar_.children_.insert(grammar_.children_.end(), children.begin(), children.end());
  return add(expression);
}

ExpressionId GrammarBuilder::literal(std::string_view bytes) {
  Expression expression;
  expression.kind = Expression::Kind::kLiteral;
  expression.first = static_cast<uint32_t>(grammar_.bytes_.size());
  expression.count = static_cast<uint32_t>(bytes.size());
  if (grammar_.bytes_.size() + bytes.size() > kMaxNodes) {
    fail(ErrorCode::kBadArgument, "the texts of the grammar have more than {} bytes; make it smaller", kMaxNodes);
  }
  grammar_.bytes_ += bytes;
  return add(expression);
}

ExpressionId GrammarBuilder::characters(std::vector<CodePointRange> ranges) {
  ranges = normalised(std::move(ranges));
  if (ranges.empty()) return nothing();
  Expression expression;
  expression.kind = Expression::Kind::kCharacters;
  expression.first = static_cast<uint32_t>(grammar_.ranges_.size());
  expression.count = static_cast<uint32_t>(ranges.size());
  grammar_.ranges_.insert(grammar_.ranges_.end(), ranges.begin(), ranges.end());
  return add(expression);
}

ExpressionId GrammarBuilder::sequence(const std::vector<ExpressionId>& parts) {
  std::vector<ExpressionId> kept;
  for (const ExpressionId part : parts) {
    if (is_nothing(part)) return part;
    if (!is_empty(part)) kept.push_back(part);
  }
  if (kept.empty()) return empty();
  if (kept.size() == 1) return kept[0];
  Expression expression;
  expression.kind = Expression::Kind::kSequence;
  return add_with_children(expression, kept);
}

ExpressionId GrammarBuilder::choice(const std::vector<ExpressionId>& alternatives) {
  std::vector<ExpressionId> kept;
  for (const ExpressionId alternative : alternatives) {
    if (!is_nothing(alternative)) kept.push_back(alternative);
  }
  if (kept.empty()) return nothing();
  if (kept.size() == 1) return kept[0];
  Expression expression;
  expression.kind = Expression::Kind::kChoice;
  return add_with_children(expression, kept);
}

ExpressionId GrammarBuilder::repeat(ExpressionId part, uint32_t min, uint32_t max) {
  if (max < min) return nothing();
  if (max == 0 || is_empty(part)) return empty();
  if (is_nothing(part)) return min == 0 ? empty() : part;
  if (min == 1 && max == 1) return part;
  Expression expression;
  expression.kind = Expression::Kind::kRepeat;
  expression.min = min;
  expression.max = max;
  return add_with_children(expression, {part});
}

ExpressionId GrammarBuilder::call(RuleId rule) {
  Expression expression;
  expression.kind = Expression::Kind::kRule;
  expression.first = rule;
  return add(expression);
}

ExpressionId GrammarBuilder::scope(Scope scope, ExpressionId part) {
  if (is_nothing(part)) return part;
  if (scope != Scope::kValue) grammar_.has_checks_ = true;
  Expression expression;
  expression.kind = Expression::Kind::kScope;
  expression.min = static_cast<uint32_t>(scope);
  return add_with_children(expression, {part});
}

ExpressionId GrammarBuilder::permutation(const std::vector<Member>& members, ExpressionId separator, uint32_t min,
                                         uint32_t max) {
  std::vector<ExpressionId> children;
  std::vector<uint8_t> flags;
  uint64_t required = 0, possible = 0;
  for (const Member& member : members) {
    if (is_nothing(member.text)) {
      if (member.required) return member.text;
      continue;
    }
    children.push_back(member.text);
    flags.push_back(
        static_cast<uint8_t>((member.required ? kRequiredMember : 0) | (member.single ? kSingleMember : 0)));
    required += member.required ? 1 : 0;
    possible += member.single ? 1 : kUnbounded;
  }
  if (required > max || possible < min || min > max) return nothing();
  if (children.empty() || max == 0) return empty();
  const size_t count = children.size();
  for (size_t i = 0; i < count; ++i) children.push_back(sequence({separator, children[i]}));
  Expression expression;
  expression.kind = Expression::Kind::kPermutation;
  expression.min = min;
  expression.max = max;
  expression.flags = static_cast<uint32_t>(grammar_.member_flags_.size());
  grammar_.member_flags_.insert(grammar_.member_flags_.end(), flags.begin(), flags.end());
  return add_with_children(expression, children);
}

void GrammarBuilder::add_note(std::string note) {
  auto& notes = grammar_.notes_;
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

RuleId GrammarBuilder::declare(std::string name, std::string place) {
  grammar_.rules_.push_back({std::move(name), std::move(place), 0});
  return static_cast<RuleId>(grammar_.rules_.size() - 1);
}

Grammar GrammarBuilder::finish(RuleId root) {
  grammar_.root_ = root;
  const Automaton checked(grammar_);
  if (!checked.can_match()) {
    const Rule& rule = grammar_.rules_[root];
    fail(ErrorCode::kBadArgument,
         "{}: no text fits: every way through \"{}\" leads to a part that can never be complete", rule.place,
         rule.name);
  }
  return std::move(grammar_);
}

}  // namespace carat::text::grammar
