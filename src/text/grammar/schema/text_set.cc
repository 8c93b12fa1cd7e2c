#include "text/grammar/schema/text_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/grammar_builder.h"
#include "text/grammar/limits.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text::grammar {

namespace {

constexpr uint32_t kDead = UINT32_MAX;
constexpr uint32_t kLast = 0x10ffff;

void add_edge(std::vector<TextSet::Edge>& edges, uint32_t first, uint32_t last, uint32_t target) {
  if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == first) {
    edges.back().last = last;
  } else {
    edges.push_back({first, last, target});
  }
}

// Calls visit(first, last, target in a, target in b) for all characters that have a target in one of them.
template <typename Visit>
void for_each_step(const std::vector<TextSet::Edge>& a, const std::vector<TextSet::Edge>& b, Visit&& visit) {
  uint32_t at = 0;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const uint32_t next_a = i < a.size() ? std::max(a[i].first, at) : kDead;
    const uint32_t next_b = j < b.size() ? std::max(b[j].first, at) : kDead;
    at = std::min(next_a, next_b);
    const bool in_a = next_a == at, in_b = next_b == at;
    uint32_t last = kLast;
    if (in_a) last = std::min(last, a[i].last);
    if (in_b) last = std::min(last, b[j].last);
    if (!in_a && next_a != kDead) last = std::min(last, next_a - 1);
    if (!in_b && next_b != kDead) last = std::min(last, next_b - 1);
    visit(at, last, in_a ? a[i].target : kDead, in_b ? b[j].target : kDead);
    at = last + 1;
    while (i < a.size() && a[i].last < at) ++i;
    while (j < b.size() && b[j].last < at) ++j;
  }
}

}  // namespace

TextSet TextSet::everything() {
  TextSet set;
  set.states_.push_back({true, {}});
  for (const CodePointRange& range : complement({})) set.states_[0].edges.push_back({range.first, range.last, 0});
  return set;
}

TextSet TextSet::some_of(std::span<const CodePointRange> characters) {
  TextSet set;
  set.states_ = {{false, {}}, {true, {}}};
  for (TextSet::State& state : set.states_) {
    for (const CodePointRange& range : characters) state.edges.push_back({range.first, range.last, 1});
  }
  return set;
}

TextSet TextSet::of_words(std::span<const std::string> words) {
  std::vector<std::map<uint32_t, uint32_t>> next(1);
  std::vector<bool> ends(1);
  for (const std::string& word : words) {
    uint32_t at = 0;
    for (size_t i = 0; i < word.size();) {
      const size_t length = std::max<size_t>(1, utf8_sequence_length(std::string_view(word).substr(i)));
      const uint32_t code_point = code_point_of(std::string_view(word).substr(i, length));
      const auto [found, is_new] = next[at].try_emplace(code_point, static_cast<uint32_t>(next.size()));
      at = found->second;
      if (is_new) {
        next.emplace_back();
        ends.push_back(false);
      }
      i += length;
    }
    ends[at] = true;
  }
  TextSet set;
  set.states_.resize(next.size());
  for (size_t i = 0; i < next.size(); ++i) {
    set.states_[i].accepting = ends[i];
    for (const auto& [code_point, target] : next[i]) add_edge(set.states_[i].edges, code_point, code_point, target);
  }
  set.trim();
  return set;
}

TextSet TextSet::of_length(uint32_t min, uint32_t max, std::string_view place) {
  if (min > max) return {};
  const uint32_t last = max == kUnbounded ? min : max;
  if (last >= kMaxTextStates) {
    fail(ErrorCode::kBadArgument,
         "{}: a length of {} together with patterns is more than can be followed; at most {} characters", place, last,
         kMaxTextStates - 1);
  }
  TextSet set;
  set.states_.resize(size_t{last} + 1);
  for (uint32_t i = 0; i <= last; ++i) {
    set.states_[i].accepting = i >= min;
    if (i == last && max != kUnbounded) break;
    for (const CodePointRange& range : complement({})) {
      set.states_[i].edges.push_back({range.first, range.last, std::min(i + 1, last)});
    }
  }
  return set;
}

TextSet TextSet::and_with(const TextSet& other, std::string_view place) const {
  return combined(other, Operation::kAnd, place);
}
TextSet TextSet::and_not(const TextSet& other, std::string_view place) const {
  return combined(other, Operation::kAndNot, place);
}
TextSet TextSet::or_with(const TextSet& other, std::string_view place) const {
  return combined(other, Operation::kOr, place);
}

TextSet TextSet::combined(const TextSet& other, Operation operation, std::string_view place) const {
  using Pair = std::pair<uint32_t, uint32_t>;
  static const std::vector<Edge> kNoEdges;
  std::map<Pair, uint32_t> numbers;
  std::vector<Pair> pairs;
  TextSet result;
  const auto number_of = [&](Pair pair) {
    const auto [found, is_new] = numbers.try_emplace(pair, static_cast<uint32_t>(pairs.size()));
    if (!is_new) return found->second;
    if (pairs.size() >= kMaxTextStates) {
      fail(ErrorCode::kBadArgument,
           "{}: the patterns and lengths that hold at the same time are too much to follow; make them simpler", place);
    }
    pairs.push_back(pair);
    const bool a = pair.first != kDead && states_[pair.first].accepting;
    const bool b = pair.second != kDead && other.states_[pair.second].accepting;
    result.states_.push_back({operation == Operation::kAnd      ? a && b
                              : operation == Operation::kAndNot ? a && !b
                                                                : a || b,
                              {}});
    return found->second;
  };
  number_of({empty() ? kDead : 0, other.empty() ? kDead : 0});
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [a, b] = pairs[i];
    std::vector<Edge> edges;
    for_each_step(a == kDead ? kNoEdges : states_[a].edges, b == kDead ? kNoEdges : other.states_[b].edges,
                  [&](uint32_t first, uint32_t last, uint32_t next_a, uint32_t next_b) {
                    if (operation != Operation::kOr && next_a == kDead) return;
                    if (operation == Operation::kAnd && next_b == kDead) return;
                    add_edge(edges, first, last, number_of({next_a, next_b}));
                  });
    result.states_[i].edges = std::move(edges);
  }
  result.trim();
  return result;
}

// Leaves the states from which an end can be reached.
void TextSet::trim() {
  std::vector<std::vector<uint32_t>> from(states_.size());
  std::vector<bool> useful(states_.size());
  std::vector<uint32_t> work;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges) from[edge.target].push_back(i);
    if (!states_[i].accepting) continue;
    useful[i] = true;
    work.push_back(i);
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t before : from[state]) {
      if (useful[before]) continue;
      useful[before] = true;
      work.push_back(before);
    }
  }
  if (states_.empty() || !useful[0]) {
    states_.clear();
    return;
  }
  std::vector<uint32_t> number(states_.size());
  std::vector<State> kept;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    number[i] = static_cast<uint32_t>(kept.size());
    if (useful[i]) kept.push_back(std::move(states_[i]));
  }
  for (State& state : kept) {
    std::erase_if(state.edges, [&](const Edge& edge) { return !useful[edge.target]; });
    for (Edge& edge : state.edges) edge.target = number[edge.target];
  }
  states_ = std::move(kept);
}

bool TextSet::contains(std::string_view text) const {
  if (empty()) return false;
  uint32_t state = 0;
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    const uint32_t code_point = code_point_of(text.substr(0, length));
    const auto& edges = states_[state].edges;
    const auto edge =
        std::partition_point(edges.begin(), edges.end(), [&](const Edge& e) { return e.last < code_point; });
    if (edge == edges.end() || edge->first > code_point) return false;
    state = edge->target;
    text.remove_prefix(length);
  }
  return states_[state].accepting;
}

bool TextSet::is_finite() const {
  // Without a circle: states can be taken away one after another, each when nothing leads to it any more.
  std::vector<uint32_t> arriving(states_.size());
  for (const State& state : states_) {
    for (const Edge& edge : state.edges) ++arriving[edge.target];
  }
  std::vector<uint32_t> work;
  if (!empty() && arriving[0] == 0) work.push_back(0);
  size_t taken = 0;
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    ++taken;
    for (const Edge& edge : states_[state].edges) {
      if (--arriving[edge.target] == 0) work.push_back(edge.target);
    }
  }
  return taken == states_.size();
}

std::optional<std::vector<std::string>> TextSet::words(size_t most) const {
  std::vector<std::string> words;
  if (empty()) return words;
  if (!is_finite()) return std::nullopt;
  struct Partial {
    uint32_t state;
    std::string text;
  };
  std::vector<Partial> work = {{0, ""}};
  size_t steps = 0;
  while (!work.empty()) {
    const Partial partial = std::move(work.back());
    work.pop_back();
    if (states_[partial.state].accepting) words.push_back(partial.text);
    if (words.size() > most || ++steps > 50 * (most + 1)) return std::nullopt;
    for (const Edge& edge : states_[partial.state].edges) {
      if (edge.last - edge.first >= most) return std::nullopt;
      for (uint32_t code_point = edge.first; code_point <= edge.last; ++code_point) {
        work.push_back({edge.target, partial.text});
        append_utf8(code_point, work.back().text);
      }
    }
  }
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace carat::text::grammar
