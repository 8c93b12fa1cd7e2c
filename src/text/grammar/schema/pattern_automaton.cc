// Regular expressions as deterministic automata.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "text/grammar/grammar_builder.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/pattern_syntax.h"
#include "text/grammar/schema/text_set.h"

namespace carat::text::grammar {

// One alternative of a pattern: first an automaton with free steps and assertions, then sets of its nodes.
class PatternAutomaton {
 public:
  explicit PatternAutomaton(std::string_view place) : place_(place) {}

  // What `sequence` matches anywhere in a text.
  TextSet run(const PatternNode& sequence) {
    const auto anything = complement({});
    end_ = add({});
    nodes_[end_].set = anything;
    nodes_[end_].target = end_;
    const uint32_t before = add({});
    nodes_[before].set = anything;
    nodes_[before].target = before;
    const uint32_t begin = build(sequence, end_);
    nodes_[before].free.push_back(begin);
    TextSet result;
    number_of(result, closed({before}, true), true);
    for (size_t i = 0; i < sets_.size(); ++i) {
      const auto edges = edges_of(result, sets_[i]);
      result.states_[i].edges = edges;
    }
    result.trim();
    return result;
  }

 private:
  struct Node {
    std::vector<CodePointRange> set = {};  // read one of these and go to `target`
    uint32_t target = 0;
    std::vector<uint32_t> free = {};  // go there without reading
    bool at_start = false;            // `free` only where nothing was read yet
    bool at_end = false;              // `free` only where nothing follows
  };
  using Set = std::vector<uint32_t>;  // sorted

  [[noreturn]] void too_large() const {
    fail(ErrorCode::kBadArgument,
         "{}: the pattern is too much to follow together with what else holds; make it simpler", place_);
  }

  uint32_t add(Node node) {
    if (nodes_.size() >= kMaxTextStates) too_large();
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  uint32_t build(const PatternNode& node, uint32_t next) {
    switch (node.kind) {
      case PatternNode::Kind::kSet:
        return add({node.set, next});
      case PatternNode::Kind::kSequence:
        for (size_t i = node.children.size(); i > 0; --i) next = build(node.children[i - 1], next);
        return next;
      case PatternNode::Kind::kChoice: {
        Node choice;
        for (const PatternNode& child : node.children) choice.free.push_back(build(child, next));
        return add(std::move(choice));
      }
      case PatternNode::Kind::kRepeat:
        return build_repeat(node, next);
      case PatternNode::Kind::kStart:
        return add({.free = {next}, .at_start = true});
      case PatternNode::Kind::kEnd:
        return add({.free = {next}, .at_end = true});
      case PatternNode::Kind::kAhead:
        break;
    }
    fail(ErrorCode::kBadArgument, "{}: the pattern uses look-ahead that is not at its start, behind ^", place_);
  }

  uint32_t build_repeat(const PatternNode& node, uint32_t next) {
    const PatternNode& child = node.children[0];
    uint32_t begin = next;
    if (node.max == kUnbounded) {
      begin = add({.free = {next}});
      const uint32_t body = build(child, begin);
      nodes_[begin].free.push_back(body);
    } else {
      for (uint32_t i = node.min; i < node.max; ++i) {
        const uint32_t body = build(child, begin);
        begin = add({.free = {body, next}});
      }
    }
    for (uint32_t i = 0; i < node.min; ++i) begin = build(child, begin);
    return begin;
  }

  // With all that can be reached without reading. `at_end` passes assertions of the end, too.
  Set closed(Set from, bool at_start, bool at_end = false) {
    std::vector<bool> seen(nodes_.size());
    if ((work_ += 1 + nodes_.size() / 32) > kMaxTextWork) too_large();
    Set set;
    while (!from.empty()) {
      const uint32_t node = from.back();
      from.pop_back();
      if (seen[node]) continue;
      seen[node] = true;
      set.push_back(node);
      if ((nodes_[node].at_start && !at_start) || (nodes_[node].at_end && !at_end)) continue;
      from.insert(from.end(), nodes_[node].free.begin(), nodes_[node].free.end());
    }
    std::sort(set.begin(), set.end());
    // Once the pattern has matched, the rest of the text makes no difference.
    if (!at_end && std::binary_search(set.begin(), set.end(), end_)) return {end_};
    return set;
  }

  uint32_t number_of(TextSet& result, Set set, bool is_start) {
    if (!is_start) {
      const auto known = numbers_.find(set);
      if (known != numbers_.end()) return known->second;
    }
    if (sets_.size() >= kMaxTextStates || (work_ += set.size()) > kMaxTextWork) too_large();
    const auto number = static_cast<uint32_t>(sets_.size());
    const Set at_end = closed(set, is_start, true);
    result.states_.push_back({std::binary_search(at_end.begin(), at_end.end(), end_), {}});
    sets_.push_back(set);
    if (!is_start) numbers_.emplace(std::move(set), number);
    return number;
  }

  std::vector<TextSet::Edge> edges_of(TextSet& result, const Set& original) {
    const Set set = original;
    std::vector<uint32_t> borders;
    for (const uint32_t node : set) {
      for (const CodePointRange& range : nodes_[node].set) {
        borders.push_back(range.first);
        borders.push_back(range.last + 1);
      }
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::vector<TextSet::Edge> edges;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      Set next;
      for (const uint32_t node : set) {
        const auto& ranges = nodes_[node].set;
        const auto range = std::partition_point(ranges.begin(), ranges.end(),
                                                [&](const CodePointRange& r) { return r.last < borders[i]; });
        if (range != ranges.end() && range->first <= borders[i]) next.push_back(nodes_[node].target);
      }
      if ((work_ += set.size()) > kMaxTextWork) too_large();
      if (next.empty()) continue;
      const uint32_t target = number_of(result, closed(std::move(next), false), false);
      if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == borders[i]) {
        edges.back().last = borders[i + 1] - 1;
      } else {
        edges.push_back({borders[i], borders[i + 1] - 1, target});
      }
    }
    return edges;
  }

  std::string_view place_;
  std::vector<Node> nodes_;
  uint32_t end_ = 0;
  std::map<Set, uint32_t> numbers_;
  std::vector<Set> sets_;
  size_t work_ = 0;
};

namespace {

// ^(?!a)(?=b)c: c, and what the look-aheads say of the whole text.
TextSet set_of_alternative(const PatternNode& alternative, std::string_view place) {
  PatternNode rest{PatternNode::Kind::kSequence};
  std::vector<const PatternNode*> aheads;
  const bool anchored = !alternative.children.empty() && alternative.children[0].kind == PatternNode::Kind::kStart;
  for (const PatternNode& child : alternative.children) {
    const bool is_leading = anchored && rest.children.size() == 1;
    if (child.kind == PatternNode::Kind::kAhead && is_leading) {
      aheads.push_back(&child);
    } else {
      rest.children.push_back(child);
    }
  }
  TextSet set = PatternAutomaton(place).run(rest);
  for (const PatternNode* ahead : aheads) {
    PatternNode looked{PatternNode::Kind::kSequence};
    looked.children = {{PatternNode::Kind::kStart}, ahead->children[0]};
    const TextSet seen = PatternAutomaton(place).run(looked);
    set = ahead->negated ? set.and_not(seen, place) : set.and_with(seen, place);
  }
  return set;
}

}  // namespace

TextSet TextSet::matching(std::string_view pattern, std::string_view place) {
  const PatternNode parsed = parse_pattern(pattern, place);
  TextSet set;
  for (const PatternNode& alternative : parsed.children) {
    TextSet one = set_of_alternative(alternative, place);
    set = set.empty() ? std::move(one) : set.or_with(one, place);
  }
  return set;
}

}  // namespace carat::text::grammar
