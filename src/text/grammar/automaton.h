#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

using NodeId = uint32_t;
using ByteSet = std::bitset<256>;

// A grammar as a pushdown automaton over bytes: for each rule a network of nodes in which calls of other rules are
// steps like the reading of a byte. Immutable.
//
// Nodes from which their rule can be completed are marked: whoever walks over these only never comes to a dead end.
class Automaton {
 public:
  static constexpr NodeId kReturn = 0;  // the end of every rule

  enum class Kind : uint8_t { kReturn, kBytes, kSplit, kCall, kRepeat, kPermutation };
  struct Node {
    Kind kind;
    uint32_t a = 0, b = 0;
  };
  struct Edge {
    uint8_t low, high;  // both included
    NodeId target;
  };
  // Counts the times `body` was read instead of copying it.
  struct Repeat {
    RuleId body;
    uint32_t min, max;  // finite
  };

  // Members in any order: which of them were read is kept beside the node.
  struct Permutation {
    std::vector<RuleId> first, later;  // a member where it is the first, and behind others
    std::vector<uint8_t> flags;        // kRequiredMember, kSingleMember
    uint32_t min, max;
    uint32_t required;  // how many members are
  };

  // Throws kBadArgument for left recursion and for grammars that get too large.
  explicit Automaton(const Grammar& grammar);

  const Node& node(NodeId id) const { return nodes_[id]; }
  size_t size() const { return nodes_.size(); }
  std::span<const Edge> edges(const Node& node) const {  // kBytes; sorted, apart
    return std::span(edges_).subspan(node.a, node.b - node.a);
  }
  std::span<const NodeId> targets(const Node& node) const {  // kSplit
    return std::span(targets_).subspan(node.a, node.b - node.a);
  }
  const Permutation& permutation(const Node& node) const { return permutations_[node.a]; }
  // The Scope that ends where a called rule comes back to this node; 0 for all others.
  uint8_t scope(NodeId id) const { return scopes_.empty() ? 0 : scopes_[id]; }
  bool has_checks() const { return has_checks_; }
  char string_quote() const { return string_quote_; }
  // kCall: the rule is node.a; kRepeat: repeat(node); kPermutation: permutation(node); all go on at node.b.
  const Repeat& repeat(const Node& node) const { return repeats_[node.a]; }
  bool has_repeats() const { return !repeats_.empty(); }

  size_t rule_count() const { return starts_.size(); }
  RuleId root() const { return root_; }
  NodeId start(RuleId rule) const { return starts_[rule]; }
  bool matches_empty(RuleId rule) const { return nullable_[starts_[rule]]; }
  // A rule is called, before any byte of it is read, only by rules of lower rank.
  uint32_t rank(RuleId rule) const { return ranks_[rule]; }
  RuleId rule_of_rank(uint32_t rank) const { return rule_of_rank_[rank]; }
  // Whether the rule can be completed from here.
  bool viable(NodeId id) const { return viable_[id]; }
  bool can_match() const { return viable_[starts_[root_]]; }
  const ByteSet& used_bytes() const { return used_bytes_; }

  // Bytes that no node tells apart share a class.
  uint32_t byte_class(uint8_t byte) const { return classes_[byte]; }
  uint32_t class_count() const { return class_count_; }

 private:
  class Builder;

  std::vector<bool> nodes_reaching_the_end(bool reading_bytes) const;
  void rank_rules(const Grammar& grammar, const std::vector<RuleId>& origins);
  std::vector<std::vector<RuleId>> rules_called_first() const;
  void classify_bytes();

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<NodeId> targets_;
  std::vector<Repeat> repeats_;
  std::vector<Permutation> permutations_;
  std::vector<uint8_t> scopes_;
  bool has_checks_ = false;
  char string_quote_ = '"';
  std::vector<NodeId> starts_;
  std::vector<uint32_t> ranks_;
  std::vector<RuleId> rule_of_rank_;
  std::vector<bool> viable_, nullable_;
  ByteSet used_bytes_;
  std::array<uint8_t, 256> classes_ = {};
  uint32_t class_count_ = 0;
  RuleId root_ = 0;
};

}  // namespace carat::text::grammar
