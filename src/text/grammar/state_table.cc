#include "text/grammar/state_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace carat::text::grammar {

namespace {

// Steps of rarer states are not worth a row.
constexpr uint32_t kVisitsForARow = 4;

template <typename T>
void sort_unique(std::vector<T>& values) {
  if (values.size() < 2) return;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

StateTable::StateTable(std::shared_ptr<const Automaton> automaton, uint32_t longest_token, uint64_t max_work)
    : automaton_(std::move(automaton)),
      longest_token_(longest_token),
      max_work_(max_work),
      calls_(automaton_->rule_count()) {
  const Frame frame = {kBottom, 0, 0};
  bottom_ = returns_.intern({&frame, 1});
}

void StateTable::fail_too_ambiguous() {
  fail(
      ErrorCode::kBadArgument,
      "the grammar is too ambiguous: the text so far can be read in too many ways; avoid alternatives that begin alike "
      "and repetitions inside of repetitions");
}

StateId StateTable::start() { return start_of(automaton_->root()); }

StateId StateTable::inside(NodeId node) {
  const Reading reading = {node, bottom_};
  return states_.intern({&reading, 1});
}

StateId StateTable::new_step(StateId state, uint8_t byte) {
  if (state == kDead) return kDead;
  if (state >= row_of_.size()) row_of_.resize(state + 1);
  const uint32_t classes = automaton_->class_count();
  RowUse& use = row_of_[state];
  if (use.row == kNoRow) {
    if (++use.visits < kVisitsForARow) return compute_step(state, byte);
    use.row = static_cast<uint32_t>(rows_.size() / classes);
    rows_.resize(rows_.size() + classes, kUnknown);
  }
  const StateId next = compute_step(state, byte);
  rows_[size_t{use.row} * classes + automaton_->byte_class(byte)] = next;
  return next;
}

StateId StateTable::compute_step(StateId state, uint8_t byte) {
  count_work(states_[state].size());
  for (const Reading& reading : states_[state]) {
    if (reading.node == kBottom) continue;
    const auto edges = automaton_->edges(automaton_->node(reading.node));
    const auto edge = std::partition_point(edges.begin(), edges.end(), [&](const auto& e) { return e.high < byte; });
    if (edge != edges.end() && edge->low <= byte) visit(edge->target, reading.returns);
  }
  return close();
}

StateId StateTable::after_return(ReturnsId returns) {
  visit(Automaton::kReturn, returns);
  return close();
}

void StateTable::visit(NodeId node, ReturnsId returns) {
  if (!automaton_->viable(node) || !seen_.insert(uint64_t{node} << 32 | returns)) return;
  work_list_.push_back({node, returns});
}

void StateTable::add_call(RuleId rule, const Frame& frame) {
  if (!automaton_->viable(automaton_->start(rule))) return;
  if (calls_[rule].empty()) called_.push(automaton_->rank(rule));
  calls_[rule].push_back(frame);
}

void StateTable::pop(ReturnsId returns) {
  count_work(returns_[returns].size());
  for (const Frame& frame : returns_[returns]) {
    if (frame.node == kBottom) {
      found_.push_back({kBottom, 0});
    } else if (automaton_->node(frame.node).kind == Automaton::Kind::kRepeat) {
      resume_repeat(frame.node, frame.count, frame.returns);
    } else if (automaton_->node(frame.node).kind == Automaton::Kind::kPermutation) {
      resume_permutation(frame.node, frame.count, frame.returns);
    } else {
      visit(frame.node, frame.returns);
    }
  }
}

void StateTable::resume_repeat(NodeId node, uint32_t count, ReturnsId returns) {
  const Automaton::Node& repeat_node = automaton_->node(node);
  const Automaton::Repeat& repeat = automaton_->repeat(repeat_node);
  if (count < repeat.max) add_call(repeat.body, {node, count + 1, returns});
  // A body that may be empty can have been read any number of times more.
  if (count >= repeat.min || automaton_->matches_empty(repeat.body)) visit(repeat_node.b, returns);
}

// The list 0, which is empty: nothing was read.
void StateTable::resume_permutation(NodeId node, uint32_t read, ReturnsId returns) {
  const Automaton::Node& permutation_node = automaton_->node(node);
  const Automaton::Permutation& members = automaton_->permutation(permutation_node);
  const size_t count = members.flags.size();
  std::vector<uint32_t> list(read_[read].begin(), read_[read].end());
  if (list.empty()) list.assign(1 + (count + 31) / 32, 0);
  const auto is_read = [&](size_t i) { return (list[1 + i / 32] >> i % 32 & 1) != 0; };
  const uint32_t written = list[0];
  uint32_t missing = 0;
  for (size_t i = 0; i < count; ++i) missing += (members.flags[i] & kRequiredMember) != 0 && !is_read(i) ? 1 : 0;
  if (missing == 0 && written >= members.min) visit(permutation_node.b, returns);
  if (members.max != kUnbounded && written >= members.max) return;
  count_work(count);
  // Beyond the last bound that matters it makes no difference how many there are.
  const uint32_t most = members.max != kUnbounded ? members.max : std::max(members.min, uint32_t{1});
  for (size_t i = 0; i < count; ++i) {
    const bool is_needed = (members.flags[i] & kRequiredMember) != 0 && !is_read(i);
    if ((members.flags[i] & kSingleMember) != 0 && is_read(i)) continue;
    if (!is_needed && members.max != kUnbounded && missing + 1 > members.max - written) continue;
    const uint32_t before = list[0], bits = list[1 + i / 32];
    list[0] = std::min(written + 1, most);
    if (members.flags[i] != 0) list[1 + i / 32] |= uint32_t{1} << i % 32;
    const uint32_t next = read_.intern(list);
    list[0] = before;
    list[1 + i / 32] = bits;
    add_call(written == 0 ? members.first[i] : members.later[i], {node, next, returns});
  }
}

// Follows everything on the work list up to the nodes that read a byte. `fresh`: the rule has just been called, and
// nothing of it was read. Its end is not followed then, because whoever calls a rule that may be empty goes on at once.
void StateTable::expand(bool fresh) {
  while (!work_list_.empty()) {
    const Reading reading = work_list_.back();
    work_list_.pop_back();
    count_work(1);
    const Automaton::Node& node = automaton_->node(reading.node);
    switch (node.kind) {
      case Automaton::Kind::kReturn:
        if (!fresh) pop(reading.returns);
        break;
      case Automaton::Kind::kBytes:
        found_.push_back(reading);
        if (found_.size() > kMaxReadings) fail_too_ambiguous();
        break;
      case Automaton::Kind::kSplit:
        for (const NodeId target : automaton_->targets(node)) visit(target, reading.returns);
        break;
      case Automaton::Kind::kCall:
        if (node.b == Automaton::kReturn) {
          // The last thing a rule does: the called rule returns where this one would, and recursion stays flat.
          count_work(returns_[reading.returns].size());
          for (const Frame& frame : returns_[reading.returns]) add_call(node.a, frame);
        } else {
          add_call(node.a, {node.b, 0, reading.returns});
        }
        if (automaton_->matches_empty(node.a)) visit(node.b, reading.returns);
        break;
      case Automaton::Kind::kRepeat:
        resume_repeat(reading.node, 0, reading.returns);
        break;
      case Automaton::Kind::kPermutation:
        resume_permutation(reading.node, 0, reading.returns);
        break;
    }
  }
}

// Rules are entered in the order of their ranks, so all callers of a rule at this place are known when it is its turn.
StateId StateTable::close() {
  try {
    expand(false);
    while (!called_.empty()) {
      const RuleId rule = automaton_->rule_of_rank(called_.top());
      called_.pop();
      std::vector<Frame>& frames = calls_[rule];
      sort_unique(frames);
      const ReturnsId returns = returns_.intern(frames);
      frames.clear();
      seen_.clear();
      visit(automaton_->start(rule), returns);
      expand(true);
    }
    return intern_found();
  } catch (...) {
    for (auto& frames : calls_) frames.clear();
    called_ = {};
    work_list_.clear();
    found_.clear();
    seen_.clear();
    throw;
  }
}

StateId StateTable::intern_found() {
  sort_unique(found_);
  const StateId state = states_.intern(found_);
  found_.clear();
  seen_.clear();
  if (bytes() > kMaxMatcherBytes) fail_too_ambiguous();
  return state;
}

// A token of n bytes reads a body n times at most, so it can only tell whether a bound is nearer than that.
uint32_t StateTable::canonical_count(const Automaton::Repeat& repeat, uint32_t count) const {
  const uint32_t far = longest_token_ + 1;
  if (count < repeat.min) return repeat.min - count > far ? repeat.min - far : count;
  return repeat.max - count > far ? std::max(repeat.min, uint32_t{1}) : count;
}

// Frames refer only to lists with lower numbers, so one pass in their order is enough.
ReturnsId StateTable::canonical_returns(ReturnsId returns) {
  std::vector<Frame> frames;
  while (canonical_of_.size() <= returns) {
    const auto next = static_cast<ReturnsId>(canonical_of_.size());
    const auto original = returns_[next];
    frames.assign(original.begin(), original.end());
    for (Frame& frame : frames) {
      if (frame.node == kBottom) continue;
      frame.returns = canonical_of_[frame.returns];
      const Automaton::Node& node = automaton_->node(frame.node);
      if (node.kind == Automaton::Kind::kRepeat && frame.count > 0) {
        frame.count = canonical_count(automaton_->repeat(node), frame.count);
      }
    }
    sort_unique(frames);
    canonical_of_.push_back(returns_.intern(frames));
  }
  return canonical_of_[returns];
}

StateId StateTable::canonical(StateId state) {
  if (!automaton_->has_repeats()) return state;
  std::vector<Reading> readings(states_[state].begin(), states_[state].end());
  for (Reading& reading : readings) {
    if (reading.node != kBottom) reading.returns = canonical_returns(reading.returns);
  }
  sort_unique(readings);
  return states_.intern(readings);
}

// Frames refer only to lists with lower numbers, so one pass in their order is enough.
StateTable::Nesting StateTable::nesting(StateId state) {
  while (nesting_of_.size() < returns_.size()) {
    Nesting all;
    for (const Frame& frame : returns_[static_cast<ReturnsId>(nesting_of_.size())]) {
      if (frame.node == kBottom) continue;
      Nesting one = nesting_of_[frame.returns];
      const uint8_t scope = automaton_->scope(frame.node);
      if ((scope & (static_cast<uint8_t>(Scope::kValue) | static_cast<uint8_t>(Scope::kUniqueItem))) != 0) ++one.depth;
      if ((scope & static_cast<uint8_t>(Scope::kUniqueItem)) != 0)
        one.unique |= uint64_t{1} << std::min(one.depth, 63u);
      if ((scope & static_cast<uint8_t>(Scope::kFreeName)) != 0) one.free_name = true;
      all.depth = std::max(all.depth, one.depth);
      all.unique |= one.unique;
      all.free_name = all.free_name || one.free_name;
    }
    nesting_of_.push_back(all);
  }
  Nesting all;
  for (const Reading& reading : states_[state]) {
    if (reading.node == kBottom) continue;
    const Nesting& one = nesting_of_[reading.returns];
    all.depth = std::max(all.depth, one.depth);
    all.unique |= one.unique;
    all.free_name = all.free_name || one.free_name;
  }
  return all;
}

StateId StateTable::start_of(RuleId rule) {
  add_call(rule, {kBottom, 0, 0});
  const StateId state = close();
  if (!automaton_->matches_empty(rule)) return state;
  std::vector<Reading> readings(states_[state].begin(), states_[state].end());
  readings.push_back({kBottom, 0});
  return states_.intern(readings);
}

StateId StateTable::import(const StateTable& other, StateId state) {
  // Lists refer to lower numbers only: mark from the top down, copy from the bottom up.
  std::vector<bool> needed(other.returns_.size());
  for (const Reading& reading : other.states_[state]) {
    if (reading.node != kBottom) needed[reading.returns] = true;
  }
  for (size_t i = needed.size(); i > 0; --i) {
    if (!needed[i - 1]) continue;
    for (const Frame& frame : other.returns_[static_cast<ReturnsId>(i - 1)]) {
      if (frame.node != kBottom) needed[frame.returns] = true;
    }
  }
  std::vector<ReturnsId> copy_of(needed.size());
  for (ReturnsId id = 0; id < needed.size(); ++id) {
    if (!needed[id]) continue;
    std::vector<Frame> frames(other.returns_[id].begin(), other.returns_[id].end());
    for (Frame& frame : frames) {
      if (frame.node == kBottom) continue;
      frame.returns = copy_of[frame.returns];
      if (automaton_->node(frame.node).kind != Automaton::Kind::kPermutation) continue;
      const auto list = other.read_[frame.count];
      frame.count = read_.intern(list);
    }
    sort_unique(frames);
    copy_of[id] = returns_.intern(frames);
  }
  std::vector<Reading> readings(other.states_[state].begin(), other.states_[state].end());
  for (Reading& reading : readings) {
    if (reading.node != kBottom) reading.returns = copy_of[reading.returns];
  }
  sort_unique(readings);
  return states_.intern(readings);
}

}  // namespace carat::text::grammar
