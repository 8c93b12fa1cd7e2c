#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <span>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/interned_lists.h"
#include "text/grammar/limits.h"
#include "text/grammar/seen_set.h"

namespace carat::text::grammar {

using StateId = uint32_t;
using ReturnsId = uint32_t;

// Where a rule goes on when it is complete.
struct Frame {
  NodeId node;
  uint32_t count;     // kRepeat: how often its body was read; kPermutation: the list of what was read of it
  ReturnsId returns;  // where the rule of `node` goes on in turn
  auto operator<=>(const Frame&) const = default;
};

// One way to read the text so far: at a node that reads a byte, inside rules that return to `returns`.
struct Reading {
  NodeId node;
  ReturnsId returns;
  auto operator<=>(const Reading&) const = default;
};

// The states of an automaton on some text: sets of readings. Calls of one rule at the same place of the text share what
// they return to, so ambiguous grammars take polynomial and not exponential room. States are numbered as they appear
// and their steps remembered: a deterministic automaton, built where it is needed. Not for several threads.
class StateTable {
 public:
  static constexpr StateId kDead = 0;
  // A frame or reading with this node: below everything, the end of the text (or what a local mask does not know).
  static constexpr NodeId kBottom = UINT32_MAX;

  // Masks are computed for tokens of up to `longest_token` bytes.
  StateTable(std::shared_ptr<const Automaton> automaton, uint32_t longest_token, uint64_t max_work = kMaxWork);

  StateId start();
  // Only the rule around `node`: at its end it comes to the bottom.
  StateId inside(NodeId node);
  StateId step(StateId state, uint8_t byte) {
    // Almost all steps of a walk over the vocabulary are known.
    if (state < row_of_.size() && row_of_[state].row != kNoRow) {
      const StateId next = rows_[size_t{row_of_[state].row} * automaton_->class_count() + automaton_->byte_class(byte)];
      if (next != kUnknown) return next;
    }
    return new_step(state, byte);
  }
  // After a rule that returns to `returns` is complete.
  StateId after_return(ReturnsId returns);

  std::span<const Reading> readings(StateId state) const { return states_[state]; }  // valid until the next step
  bool at_bottom(StateId state) const {
    return state != kDead && states_[state].back().node == kBottom;  // sorted: the bottom comes last
  }
  bool only_bottom(StateId state) const { return at_bottom(state) && states_[state].size() == 1; }

  // A state that allows the same tokens, equal for many states: counts are moved to where no token can tell.
  StateId canonical(StateId state);

  // The arrays and objects around the texts that are read, outermost first, by the scopes of their frames: bit d is set
  // where an item of the array at depth d has to be different from those before it (bit 63: that deep or deeper).
  struct Nesting {
    uint32_t depth = 0;
    uint64_t unique = 0;
    bool free_name = false;  // a name is read that must be different from those before it
  };
  Nesting nesting(StateId state);

  // Of another rule than the root.
  StateId start_of(RuleId rule);

  // The same state in this table, which takes the place of `other`.
  StateId import(const StateTable& other, StateId state);

  // Bounds what one operation may do: throws kBadArgument when more than
  // `max_work` steps were counted since
  // begin_work().
  void begin_work() { work_ = 0; }
  void count_work(uint64_t steps) {
    work_ += steps;
    if (work_ > max_work_) fail_too_ambiguous();
  }
  size_t bytes() const {
    return returns_.bytes() + states_.bytes() + read_.bytes() + rows_.capacity() * 4 + row_of_.capacity() * 8 +
           nesting_of_.capacity() * sizeof(Nesting);
  }

 private:
  [[noreturn]] static void fail_too_ambiguous();

  StateId new_step(StateId state, uint8_t byte);
  StateId compute_step(StateId state, uint8_t byte);
  void visit(NodeId node, ReturnsId returns);
  void pop(ReturnsId returns);
  void resume_repeat(NodeId node, uint32_t count, ReturnsId returns);
  void resume_permutation(NodeId node, uint32_t read, ReturnsId returns);
  void expand(bool fresh);
  void add_call(RuleId rule, const Frame& frame);
  StateId close();
  StateId intern_found();
  uint32_t canonical_count(const Automaton::Repeat& repeat, uint32_t count) const;
  ReturnsId canonical_returns(ReturnsId returns);

  std::shared_ptr<const Automaton> automaton_;
  uint32_t longest_token_;
  uint64_t work_ = 0;
  uint64_t max_work_;
  InternedLists<Frame> returns_;
  InternedLists<Reading> states_;
  InternedLists<uint32_t> read_;     // of permutations: the number of members read, and a bit for each single one
  std::vector<Nesting> nesting_of_;  // by returns
  ReturnsId bottom_ = 0;

  // Steps of states that are seen often: rows of one entry for each class of bytes.
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr StateId kUnknown = UINT32_MAX;
  struct RowUse {
    uint32_t row = kNoRow;
    uint32_t visits = 0;
  };
  std::vector<RowUse> row_of_;
  std::vector<StateId> rows_;
  std::vector<ReturnsId> canonical_of_;

  // What close() works with; empty between calls.
  std::vector<Reading> work_list_;
  std::vector<Reading> found_;
  SeenSet seen_;
  std::vector<std::vector<Frame>> calls_;                                        // by rule
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> called_;  // ranks
};

}  // namespace carat::text::grammar
