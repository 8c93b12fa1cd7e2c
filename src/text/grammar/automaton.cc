#include "text/grammar/automaton.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/utf8_ranges.h"

namespace carat::text::grammar {

// Builds from the end to the start: every part is told where it goes on, so no empty steps are needed.
class Automaton::Builder {
 public:
  Builder(Automaton& automaton, const Grammar& grammar) : automaton_(automaton), grammar_(grammar) {}

  // For each rule of the automaton the rule of the grammar it is a part of.
  std::vector<RuleId> run() {
    add({Kind::kReturn});
    const size_t named = grammar_.rules().size();
    for (RuleId rule = 0; rule < named; ++rule) add_rule(rule, grammar_.rules()[rule].body);
    for (RuleId rule = 0; rule < bodies_.size(); ++rule) {  // grows: the bodies of repeats are rules, too
      current_origin_ = origins_[rule];
      automaton_.starts_[rule] = build(bodies_[rule], kReturn);
    }
    automaton_.root_ = grammar_.root();
    return std::move(origins_);
  }

 private:
  NodeId add(Node node) {
    if (automaton_.nodes_.size() >= kMaxNodes) {
      fail(ErrorCode::kBadArgument, "the grammar needs more than {} states; make it smaller", kMaxNodes);
    }
    automaton_.nodes_.push_back(node);
    return static_cast<NodeId>(automaton_.nodes_.size() - 1);
  }

  RuleId add_rule(RuleId origin, ExpressionId body) {
    bodies_.push_back(body);
    origins_.push_back(origin);
    automaton_.starts_.push_back(kReturn);
    return static_cast<RuleId>(bodies_.size() - 1);
  }

  NodeId add_split(const std::vector<NodeId>& targets) {
    if (targets.size() == 1) return targets[0];
    const auto begin = static_cast<uint32_t>(automaton_.targets_.size());
    automaton_.targets_.insert(automaton_.targets_.end(), targets.begin(), targets.end());
    return add({Kind::kSplit, begin, static_cast<uint32_t>(automaton_.targets_.size())});
  }

  // `edges` sorted and apart.
  NodeId add_bytes(const std::vector<Edge>& edges) {
    const auto begin = static_cast<uint32_t>(automaton_.edges_.size());
    automaton_.edges_.insert(automaton_.edges_.end(), edges.begin(), edges.end());
    return add({Kind::kBytes, begin, static_cast<uint32_t>(automaton_.edges_.size())});
  }

  NodeId build(ExpressionId id, NodeId next) {
    const Expression& expression = grammar_.expression(id);
    switch (expression.kind) {
      case Expression::Kind::kNothing:
        return add_bytes({});
      case Expression::Kind::kLiteral:
        return build_text(grammar_.literal(expression), next);
      case Expression::Kind::kCharacters: {
        const auto sequences = utf8_sequences(grammar_.ranges(expression));
        return build_sequences(sequences, 0, next);
      }
      case Expression::Kind::kSequence: {
        const auto children = grammar_.children(expression);
        for (size_t i = children.size(); i > 0; --i) next = build(children[i - 1], next);
        return next;
      }
      case Expression::Kind::kChoice:
        return build_choice(expression, next);
      case Expression::Kind::kRepeat:
        return build_repeat(expression, next);
      case Expression::Kind::kRule:
        return add({Kind::kCall, expression.first, next});
      case Expression::Kind::kPermutation:
        return build_permutation(expression, next);
      case Expression::Kind::kScope:
        return build_scope(expression, next);
    }
    return next;
  }

  NodeId build_text(std::string_view text, NodeId next) {
    for (size_t i = text.size(); i > 0; --i) {
      const auto byte = static_cast<uint8_t>(text[i - 1]);
      next = add_bytes({{byte, byte, next}});
    }
    return next;
  }

  NodeId build_sequences(std::span<const ByteSequence> sequences, size_t at, NodeId next) {
    std::vector<Edge> edges;
    for (size_t begin = 0; begin < sequences.size();) {
      const ByteRange range = sequences[begin].bytes[at];
      size_t end = begin + 1;
      while (end < sequences.size() && sequences[end].bytes[at] == range) ++end;
      const bool last = at + 1 == sequences[begin].length;
      edges.push_back(
          {range.low, range.high, last ? next : build_sequences(sequences.subspan(begin, end - begin), at + 1, next)});
      begin = end;
    }
    return add_bytes(edges);
  }

  // Literals become one tree, so that a long list of words is one reading of the text and not one for each word.
  NodeId build_choice(const Expression& expression, NodeId next) {
    std::vector<std::string_view> words;
    std::vector<NodeId> targets;
    for (const ExpressionId child : grammar_.children(expression)) {
      const Expression& alternative = grammar_.expression(child);
      if (alternative.kind == Expression::Kind::kLiteral) {
        words.push_back(grammar_.literal(alternative));
      } else {
        targets.push_back(build(child, next));
      }
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    if (!words.empty()) targets.push_back(build_words(words, 0, next));
    return add_split(targets);
  }

  // `words`: sorted, different, equal in their first `at` bytes. Recursion only where words part, so its depth is less
  // than the square root of twice their bytes.
  NodeId build_words(std::span<const std::string_view> words, size_t at, NodeId next) {
    if (words.size() == 1) return build_text(words[0].substr(at), next);
    const std::string_view first = words.front(), last = words.back();
    size_t common = at;
    while (common < first.size() && first[common] == last[common]) ++common;
    std::vector<NodeId> targets;
    std::vector<Edge> edges;
    size_t begin = 0;
    if (first.size() == common) {
      targets.push_back(next);
      begin = 1;
    }
    while (begin < words.size()) {
      const char byte = words[begin][common];
      size_t end = begin + 1;
      while (end < words.size() && words[end][common] == byte) ++end;
      const NodeId target = build_words(words.subspan(begin, end - begin), common + 1, next);
      edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), target});
      begin = end;
    }
    targets.push_back(add_bytes(edges));
    return build_text(first.substr(at, common - at), add_split(targets));
  }

  NodeId build_repeat(const Expression& expression, NodeId next) {
    const ExpressionId child = grammar_.children(expression)[0];
    if (expression.max == kUnbounded) {
      const NodeId loop = add({Kind::kSplit});
      const NodeId entry = build(child, loop);
      const auto begin = static_cast<uint32_t>(automaton_.targets_.size());
      automaton_.targets_.insert(automaton_.targets_.end(), {entry, next});
      automaton_.nodes_[loop] = {Kind::kSplit, begin, begin + 2};
      if (expression.min == 0) return loop;
      return expression.min == 1 ? entry : add_counted(child, expression.min - 1, expression.min - 1, entry);
    }
    if (expression.min == 0 && expression.max == 1) return add_split({build(child, next), next});
    return add_counted(child, expression.min, expression.max, next);
  }

  NodeId build_permutation(const Expression& expression, NodeId next) {
    const auto children = grammar_.children(expression);
    const auto flags = grammar_.member_flags(expression);
    Permutation permutation{{}, {}, {flags.begin(), flags.end()}, expression.min, expression.max, 0};
    for (size_t i = 0; i < flags.size(); ++i) {
      permutation.first.push_back(body_rule(children[i]));
      permutation.later.push_back(body_rule(children[i + flags.size()]));
      permutation.required += (flags[i] & kRequiredMember) != 0 ? 1 : 0;
    }
    automaton_.permutations_.push_back(std::move(permutation));
    return add({Kind::kPermutation, static_cast<uint32_t>(automaton_.permutations_.size() - 1), next});
  }

  // The part becomes a rule, so that there is a frame for as long as it is read.
  NodeId build_scope(const Expression& expression, NodeId next) {
    const auto begin = static_cast<uint32_t>(automaton_.targets_.size());
    automaton_.targets_.push_back(next);
    const NodeId end = add({Kind::kSplit, begin, begin + 1});
    automaton_.scopes_.resize(automaton_.nodes_.size());
    automaton_.scopes_[end] = static_cast<uint8_t>(expression.min);
    return add({Kind::kCall, body_rule(grammar_.children(expression)[0]), end});
  }

  RuleId body_rule(ExpressionId body) {
    const auto [found, is_new] = body_rules_.try_emplace(body, 0);
    if (is_new) found->second = add_rule(current_origin_, body);
    return found->second;
  }

  NodeId add_counted(ExpressionId child, uint32_t min, uint32_t max, NodeId next) {
    automaton_.repeats_.push_back({body_rule(child), min, max});
    return add({Kind::kRepeat, static_cast<uint32_t>(automaton_.repeats_.size() - 1), next});
  }

  Automaton& automaton_;
  const Grammar& grammar_;
  std::vector<ExpressionId> bodies_;
  std::vector<RuleId> origins_;
  std::unordered_map<ExpressionId, RuleId> body_rules_;
  RuleId current_origin_ = 0;
};

Automaton::Automaton(const Grammar& grammar) {
  const std::vector<RuleId> origins = Builder(*this, grammar).run();
  if (!scopes_.empty()) scopes_.resize(nodes_.size());
  has_checks_ = grammar.has_checks();
  string_quote_ = grammar.string_quote();
  nullable_ = nodes_reaching_the_end(false);
  viable_ = nodes_reaching_the_end(true);
  rank_rules(grammar, origins);
  classify_bytes();
}

// The least fixed point: starting from the end of the rules, each node that gets there tells those that wait for it.
std::vector<bool> Automaton::nodes_reaching_the_end(bool reading_bytes) const {
  std::vector<bool> reaches(nodes_.size());
  const auto for_each_need = [&](const Node& node, auto&& visit) {
    switch (node.kind) {
      case Kind::kReturn:
        break;
      case Kind::kBytes:
        for (const Edge& edge : edges(node)) {
          if (reading_bytes) visit(edge.target);
        }
        break;
      case Kind::kSplit:
        for (const NodeId target : targets(node)) visit(target);
        break;
      case Kind::kCall:
        visit(starts_[node.a]);
        visit(node.b);
        break;
      case Kind::kRepeat:
        visit(starts_[repeat(node).body]);
        visit(node.b);
        break;
      case Kind::kPermutation:
        for (const RuleId member : permutation(node).first) visit(starts_[member]);
        visit(node.b);
        break;
    }
  };
  // Whether enough members can be complete, and all that must come.
  const auto permutation_reaches = [&](const Node& node) {
    const Permutation& each = permutation(node);
    uint64_t possible = 0;
    for (size_t i = 0; i < each.first.size(); ++i) {
      const bool can = reaches[starts_[each.first[i]]];
      if (!can && (each.flags[i] & kRequiredMember) != 0) return false;
      if (can) possible += (each.flags[i] & kSingleMember) != 0 ? 1 : kUnbounded;
    }
    return possible >= each.min;
  };
  std::vector<uint32_t> ends(nodes_.size() + 1);
  for (const Node& node : nodes_) for_each_need(node, [&](NodeId need) { ++ends[need + 1]; });
  for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
  std::vector<NodeId> waiting(ends.back());  // those that need node i: from ends[i] on, once filled up to ends[i + 1]
  std::vector<uint32_t> filled(ends.begin(), ends.end() - 1);
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    for_each_need(nodes_[id], [&](NodeId need) { waiting[filled[need]++] = id; });
  }

  std::vector<NodeId> reached = {kReturn};
  reaches[kReturn] = true;
  while (!reached.empty()) {
    const NodeId id = reached.back();
    reached.pop_back();
    for (uint32_t i = ends[id]; i < ends[id + 1]; ++i) {
      const Node& node = nodes_[waiting[i]];
      if (reaches[waiting[i]]) continue;
      const bool both = node.kind == Kind::kCall || (node.kind == Kind::kRepeat && repeat(node).min > 0);
      const NodeId called = node.kind == Kind::kCall     ? starts_[node.a]
                            : node.kind == Kind::kRepeat ? starts_[repeat(node).body]
                                                         : id;
      if (both && !(reaches[called] && reaches[node.b])) continue;
      if ((node.kind == Kind::kRepeat || node.kind == Kind::kPermutation) && !reaches[node.b]) continue;
      if (node.kind == Kind::kPermutation && !permutation_reaches(node)) continue;
      reaches[waiting[i]] = true;
      reached.push_back(waiting[i]);
    }
  }
  return reaches;
}

// For each rule those that it calls before any byte is read.
std::vector<std::vector<RuleId>> Automaton::rules_called_first() const {
  std::vector<std::vector<RuleId>> called(starts_.size());
  std::vector<RuleId> seen(nodes_.size(), UINT32_MAX);
  std::vector<NodeId> work;
  for (RuleId rule = 0; rule < starts_.size(); ++rule) {
    work.assign(1, starts_[rule]);
    while (!work.empty()) {
      const NodeId id = work.back();
      work.pop_back();
      if (std::exchange(seen[id], rule) == rule) continue;
      const Node& node = nodes_[id];
      if (node.kind == Kind::kSplit) {
        for (const NodeId target : targets(node)) work.push_back(target);
      } else if (node.kind == Kind::kCall || node.kind == Kind::kRepeat) {
        const RuleId callee = node.kind == Kind::kCall ? node.a : repeat(node).body;
        called[rule].push_back(callee);
        if (matches_empty(callee) || (node.kind == Kind::kRepeat && repeat(node).min == 0)) work.push_back(node.b);
      } else if (node.kind == Kind::kPermutation) {
        const Permutation& members = permutation(node);
        called[rule].insert(called[rule].end(), members.first.begin(), members.first.end());
        called[rule].insert(called[rule].end(), members.later.begin(), members.later.end());
        if (members.min == 0 && members.required == 0) work.push_back(node.b);
      }
    }
  }
  return called;
}

void Automaton::rank_rules(const Grammar& grammar, const std::vector<RuleId>& origins) {
  const auto called = rules_called_first();
  std::vector<uint32_t> callers(starts_.size());
  for (const auto& callees : called) {
    for (const RuleId callee : callees) ++callers[callee];
  }
  for (RuleId rule = 0; rule < starts_.size(); ++rule) {
    if (callers[rule] == 0) rule_of_rank_.push_back(rule);
  }
  ranks_.resize(starts_.size());
  for (size_t rank = 0; rank < rule_of_rank_.size(); ++rank) {
    const RuleId rule = rule_of_rank_[rank];
    ranks_[rule] = static_cast<uint32_t>(rank);
    for (const RuleId callee : called[rule]) {
      if (--callers[callee] == 0) rule_of_rank_.push_back(callee);
    }
  }
  if (rule_of_rank_.size() == starts_.size()) return;

  // Each rule left over is called by one left over: going back from any of them ends in a circle.
  std::vector<RuleId> caller(starts_.size());
  for (RuleId rule = 0; rule < starts_.size(); ++rule) {
    if (callers[rule] == 0) continue;
    for (const RuleId callee : called[rule]) caller[callee] = rule;
  }
  const auto left_over = std::find_if(callers.begin(), callers.end(), [](uint32_t count) { return count > 0; });
  auto rule = static_cast<RuleId>(left_over - callers.begin());
  for (size_t steps = 0; steps < starts_.size(); ++steps) rule = caller[rule];
  const Rule& named = grammar.rules()[origins[rule]];
  fail(ErrorCode::kBadArgument,
       "{}: rule \"{}\" can come back to itself before any character is read (left recursion); write the repetition "
       "with * or +, or put the part that reads something first",
       named.place, named.name);
}

void Automaton::classify_bytes() {
  std::bitset<257> borders;
  borders.set(0);
  for (const Edge& edge : edges_) {
    borders.set(edge.low);
    borders.set(static_cast<size_t>(edge.high) + 1);
    for (uint32_t byte = edge.low; byte <= edge.high; ++byte) used_bytes_.set(byte);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    class_count_ += borders[byte] ? 1 : 0;
    classes_[byte] = static_cast<uint8_t>(class_count_ - 1);
  }
}

}  // namespace carat::text::grammar
